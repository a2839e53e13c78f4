"""The REST API, one file per resource: parse, authorise, call one service, present. It writes no rows itself."""
