"""The API: one file per resource. Thin: parse, authorise, call one service, present. It writes no row by itself."""
