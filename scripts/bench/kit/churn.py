"""Clients that come and go over TLS, few of them as they should."""

import asyncio
import collections
import json
import random
import ssl
import threading

# Clients of each kind that come in a second.
KINDS = {
    "ask once": 14,
    "ask with a wrong key": 2,
    "ask for nonsense": 2,
    "pipeline": 2,
    "leave before the answer": 4,
    "leave within the body": 4,
    "leave within the handshake": 2,
    "speak no TLS": 1,
    "reset HTTP/2 streams": 1,
    "say nothing": 0.5,
    "send the head by the byte": 0.5,
    "send the body by the byte": 0.5,
    "watch the events": 0.2,
}
PATIENCE_S = 60
STREAMS = 20
# The models they ask, and how many numbers each takes.
WIDTHS = {"steady": 16, "cached": 1024}
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS, RST_STREAM, SETTINGS = 1, 3, 4
END_HEADERS = 4


class Churn(threading.Thread):
    """All of them, until ended; `counts` has how many came of each kind."""

    def __init__(self, inference, admin, keys, authority, seed):
        super().__init__(daemon=True)
        self.inference, self.admin, self.keys = inference, admin, keys
        self.chance, self.over = random.Random(seed), threading.Event()
        self.counts, self.statuses = collections.Counter(), collections.Counter()
        self.plain = ssl.create_default_context(cafile=authority)
        self.h2 = ssl.create_default_context(cafile=authority)
        self.h2.set_alpn_protocols(["h2"])
        self.acts = {
            "ask once": self.once,
            "ask with a wrong key": self.stranger,
            "ask for nonsense": self.nonsense,
            "pipeline": self.pipeline,
            "leave before the answer": self.deaf,
            "leave within the body": self.half,
            "leave within the handshake": self.unshaken,
            "speak no TLS": self.clear,
            "reset HTTP/2 streams": self.resets,
            "say nothing": self.silent,
            "send the head by the byte": self.slow_head,
            "send the body by the byte": self.slow_body,
            "watch the events": self.events,
        }

    def run(self):
        asyncio.run(self.all())

    def end(self):
        self.over.set()
        self.join()

    async def all(self):
        kinds, weights = list(KINDS), list(KINDS.values())
        clients = set()
        while not self.over.is_set():
            kind = self.chance.choices(kinds, weights)[0]
            self.counts[kind] += 1
            client = asyncio.create_task(self.one(self.acts[kind]))
            clients.add(client)
            client.add_done_callback(clients.discard)
            await asyncio.sleep(self.chance.expovariate(sum(weights)))
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)

    async def one(self, act):
        try:
            await asyncio.wait_for(act(), PATIENCE_S)
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            pass  # being hung up on is what many of them are here for

    async def dial(self, url=None, context=None):
        host, _, port = (url or self.inference).split("://")[1].partition(":")
        return await asyncio.open_connection(host, int(port), ssl=context or self.plain, server_hostname="localhost")

    def request(self, key=None, model=None):
        """A head and a body that nobody sent before."""
        known = self.chance.choice(list(WIDTHS))
        data = [self.chance.randrange(1000) for _ in range(WIDTHS[known])]
        body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, len(data)], "data": data}]}
        body = json.dumps(body).encode()
        model = model or known
        key = key or self.chance.choice(self.keys["tenants"])
        head = f"POST /v2/models/{model}/infer HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n"
        return f"{head}content-length: {len(body)}\r\n\r\n".encode(), body

    async def answer(self, reader):
        head = await reader.readuntil(b"\r\n\r\n")
        self.statuses[int(head.split()[1])] += 1
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                await reader.readexactly(int(line.split(b":")[1]))

    async def exchange(self, *pieces, pause_s=0.0, answers=1):
        """Sends the pieces one by one and waits for answers, however many come."""
        reader, writer = await self.dial()
        try:
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(pause_s)
            for _ in range(answers):
                await self.answer(reader)
        finally:
            writer.transport.abort()

    async def once(self):
        await self.exchange(b"".join(self.request()))

    async def stranger(self):
        await self.exchange(b"".join(self.request(key="nobody's")))

    async def nonsense(self):
        garbage = self.chance.randbytes(200)
        await self.exchange(
            self.chance.choice(
                [
                    b"".join(self.request(model="nothing")),
                    garbage,
                    b"GET /" + b"x" * 5000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n",
                    self.request()[0] + garbage * 2,
                ]
            )
        )

    async def pipeline(self):
        await self.exchange(b"".join(b"".join(self.request()) for _ in range(8)), answers=8)

    async def deaf(self):
        await self.exchange(b"".join(self.request()), answers=0)

    async def half(self):
        head, body = self.request()
        await self.exchange(head + body[: self.chance.randrange(len(body))], answers=0)

    async def slow_head(self):
        head, _ = self.request()
        await self.exchange(*(bytes([byte]) for byte in head), pause_s=0.2)

    async def slow_body(self):
        head, body = self.request()
        await self.exchange(head, *(bytes([byte]) for byte in body), pause_s=0.2)

    async def silent(self):
        reader, writer = await self.dial()
        try:
            await reader.read(1)
        finally:
            writer.transport.abort()

    async def raw(self, bytes_):
        host, _, port = self.inference.split("://")[1].partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(bytes_)
        await writer.drain()
        return reader, writer

    async def unshaken(self):
        _, writer = await self.raw(b"\x16\x03\x01\x02\x00\x01")
        writer.transport.abort()

    async def clear(self):
        reader, writer = await self.raw(b"".join(self.request()))
        try:
            await reader.read(100)
        finally:
            writer.transport.abort()

    async def resets(self):
        reader, writer = await self.dial(context=self.h2)
        fields = {":method": "POST", ":scheme": "https", ":path": "/v2/models/steady/infer", ":authority": "localhost"}
        fields["authorization"] = f"Bearer {self.keys['tenants'][0]}"
        block = b"".join(b"\0" + literal(name) + literal(value) for name, value in fields.items())
        try:
            writer.write(PREFACE + frame(SETTINGS, 0, 0, b""))
            for stream in range(1, 2 * STREAMS, 2):
                writer.write(frame(HEADERS, END_HEADERS, stream, block))
                writer.write(frame(RST_STREAM, 0, stream, (8).to_bytes(4, "big")))
            await writer.drain()
            await reader.read(1000)
        finally:
            writer.transport.abort()

    async def events(self):
        reader, writer = await self.dial(self.admin)
        head = f"GET /admin/v1/events HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {self.keys['admin']}\r\n\r\n"
        try:
            writer.write(head.encode())
            for _ in range(self.chance.randrange(1, 20)):
                await reader.readuntil(b"\n\n")
        finally:
            writer.transport.abort()


def literal(text):
    """A string of HPACK as it is; shorter than 127 bytes."""
    return bytes([len(text)]) + text.encode()


def frame(kind, flags, stream, payload):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload
