"""A web process under its supervisor, both forked from a process that has loaded the product."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from types import SimpleNamespace

from tests.flows.processes import Program

SUPERVISED = """
import sys
from agents.management.supervisor import Stopped, Supervisor, Web, open_socket, stop_on_signals

web = Web(open_socket("127.0.0.1", 0), sys.argv[1])
stop_on_signals()
try:
    with Supervisor([web], say=lambda _: None) as children:
        web.wait_until_it_answers()
        print(web.host, web.port, web.address, flush=True)
        children.watch()
except Stopped:
    pass
"""


@contextmanager
def web_process(application: str = "") -> Iterator[SimpleNamespace]:
    """Host, port and address of a web process on the test database, with lqops or an application of the tests."""
    with closing(Program(SUPERVISED, application)) as program:
        line = program.stdout.readline()
        assert line, program.stderr.read()
        host, port, address = line.split()
        yield SimpleNamespace(host=host, port=int(port), address=address)
        program.terminate()
