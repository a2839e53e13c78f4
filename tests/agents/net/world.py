"""A fake internet on loopback: names, public addresses, and the servers behind them."""

import asyncio
import contextlib
import socket
import threading

from agents.net import AsyncSafeClient, SafeClient, transport

FIRST, SECOND, THIRD = "93.184.216.34", "151.101.1.69", "2606:2800:220:1:248:1893:25c8:1946"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def answer(status=200, body=b"", *headers):
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def redirect(location, status=302):
    return answer(status, b"", f"Location: {location}")


STALLED = 30  # seconds that a busy machine may stand still at most; servers that hang do so for twice as long


def hang(*_):
    threading.Event().wait(2 * STALLED)


class Server:
    """A server on loopback; `behave(connection, request)` runs in a thread of its own."""

    def __init__(self, behave):
        self.behave = behave
        self.requests = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with contextlib.suppress(OSError), connection:
            connection.settimeout(60)
            request = self._request(connection)
            self.requests.append(request)
            if callable(self.behave):
                self.behave(connection, request)
            else:
                connection.sendall(self.behave)

    def _request(self, connection):
        data = b""
        while b"\r\n\r\n" not in data:
            data += connection.recv(65536) or b"\r\n\r\n"
        head, _, body = data.partition(b"\r\n\r\n")
        for line in head.lower().split(b"\r\n"):
            while line.startswith(b"content-length:") and len(body) < int(line[15:]):
                body += connection.recv(65536)
        return head + b"\r\n\r\n" + body

    def close(self):
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)  # a thread that waits in accept() would keep it listening
        self.listener.close()

    def refuse(self):
        """Refuse connections, and keep the port: freed, it would soon be the port of somebody else's server."""
        self.close()
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(("127.0.0.1", self.port))


class World:
    """`dialled` lists every address that was connected to, `asked` every name that was looked up."""

    def __init__(self):
        self.names = {}
        self.servers = {}
        self.dialled = []
        self.asked = []

    def serve(self, name, behave, address=FIRST, port=80):
        server = Server(behave)
        self.names.setdefault(name, [address])
        self.servers[address, port] = server
        return server

    def resolve(self, host):
        self.asked.append(host)
        return self.names[host]

    def reroute(self, address, port):
        self.dialled.append((address, port))
        return "127.0.0.1", self.servers[address, port].port

    def close(self):
        for server in self.servers.values():
            server.close()


class Recorder:
    """Connects as the client does, and keeps the sockets."""

    def __init__(self):
        self.sockets = []

    async def __call__(self, *given):
        connected = await transport.connect(*given)
        self.sockets.append(connected)
        return connected

    def all_closed(self):
        return self.sockets != [] and all(connected.fileno() == -1 for connected in self.sockets)


def leave_and_cancel(opening, steps):
    """Leave what `opening` opens, and cancel whoever leaves it so many steps of the event loop later."""

    async def cancel(leaver):
        for _ in range(steps):
            await asyncio.sleep(0)
        leaver.cancel()

    async def leave():
        async with opening():
            return asyncio.create_task(cancel(asyncio.current_task()))

    async def both():
        await asyncio.wait([asyncio.create_task(leave())])

    asyncio.run(both())


class Fetch:
    """Fetches with one of the two clients; every test runs with both."""

    def __init__(self, kind, world):
        self.kind = kind
        self.world = world

    def __call__(self, url, method="GET", *, client=None, **options):
        settings = {"resolve": self.world.resolve, "reroute": self.world.reroute, **(client or {})}
        if self.kind == "sync":
            return SafeClient(**settings).request(method, url, **options)
        return asyncio.run(self._later(url, method, settings, options))

    async def _later(self, url, method, settings, options):
        async with AsyncSafeClient(**settings) as client:
            return await client.request(method, url, **options)
