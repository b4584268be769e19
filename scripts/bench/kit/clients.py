"""Clients of two routers, as a careful one is written, and what became of each of their requests.

A request has a number, which its answer must carry, and a deadline. It goes to the router whose turn
it is, or to the other if that did not say that it is ready when last asked. An attempt fails if the
connection fails or ends without an answer, if a 5xx comes, or if nothing has come for PATIENCE_S: the
client then hangs up and asks the other router, and so on in turns while there is time. An answer is
read until the router closes, so that a second one on the same connection would be seen.
"""

import collections
import concurrent.futures
import json
import socket
import threading
import time

PATIENCE_S = 1.0
AGAIN_S = 0.02
# Every fourth request is urgent: silence at one router leaves it no time for the other. Of the others
# each could be asked for anew after any silence.
PATIENT_S, URGENT_S, URGENT_EVERY = 5.0, 0.3, 4
PROBE_EVERY_S, PROBE_PATIENCE_S = 0.1, 0.25


class Failed(Exception):
    """An attempt that may be made again elsewhere."""


class Wrong(Exception):
    """What must never come."""


def exchange(address, request, until):
    """All that a router sends until it closes."""
    received = b""
    try:
        with socket.create_connection((address, 8000), timeout=max(0.001, until - time.monotonic())) as link:
            link.sendall(request)
            while True:
                left = until - time.monotonic()
                if left <= 0:
                    raise Failed("silent")
                link.settimeout(left)
                got = link.recv(65536)
                if not got:
                    return received
                received += got
    except TimeoutError as error:
        raise Failed("silent") from error
    except OSError as error:
        raise Failed(f"connection: {error.strerror or error}") from error


def read(received):
    """Status and body of the one answer that there must be."""
    head, split, body = received.partition(b"\r\n\r\n")
    if not split:
        raise Failed("hung up")
    lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines[1:])
    length = int(headers["content-length"])
    if len(body) < length:
        raise Failed("hung up")
    if len(body) > length:
        raise Wrong("answered twice on one connection")
    return int(lines[0].split()[1]), json.loads(body)


class Clients:
    """Requests at a steady rate, whatever becomes of those before."""

    def __init__(self, fleet, rate):
        self.addresses = [router.host.address for router in fleet.routers]
        self.ready, self.gap = [True, True], 1 / rate
        self.outcomes, self.times = collections.Counter(), {True: [], False: []}
        self.lost, self.answers = [], collections.Counter()
        self.lock, self.over = threading.Lock(), threading.Event()
        self.pool = concurrent.futures.ThreadPoolExecutor(max_workers=1500)
        self.threads = [threading.Thread(target=self.probe, args=(router,)) for router in range(2)]
        self.threads.append(threading.Thread(target=self.run))
        for thread in self.threads:
            thread.start()

    def probe(self, router):
        request = b"GET /v2/health/ready HTTP/1.1\r\nhost: m\r\nconnection: close\r\n\r\n"
        while not self.over.wait(PROBE_EVERY_S):
            try:
                status, _ = read(exchange(self.addresses[router], request, time.monotonic() + PROBE_PATIENCE_S))
                self.ready[router] = status == 200
            except (Failed, Wrong, ValueError, KeyError):
                self.ready[router] = False

    def run(self):
        due, number = time.monotonic(), 0
        while not self.over.is_set():
            time.sleep(max(0, due - time.monotonic()))
            self.pool.submit(self.ask, number, due)
            due, number = due + self.gap, number + 1

    def ask(self, number, due):
        """Has one request answered, and notes how it ended."""
        urgent = number % URGENT_EVERY == 0
        deadline = due + (URGENT_S if urgent else PATIENT_S)
        tried, router = [], number // URGENT_EVERY % 2
        if not self.ready[router] and self.ready[1 - router]:
            router = 1 - router
        while time.monotonic() < deadline:
            began = time.monotonic()
            try:
                self.once(router, number, deadline)
                return self.note(urgent, "answered at once" if not tried else "answered after a retry", number, due)
            except Failed as failed:
                tried.append((began - due, router, str(failed)))
            except Exception as wrong:  # whatever else happens is for the record, not for this thread
                return self.note(urgent, f"wrong: {wrong}", number, due, tried)
            router = 1 - router
            if len(tried) % 2 == 0:
                time.sleep(AGAIN_S)
        return self.note(urgent, f"failed: {tried[-1][2] if tried else 'never sent'}", number, due, tried)

    def once(self, router, number, deadline):
        left = deadline - time.monotonic()
        data = [number % 65536, number // 65536, 1, 2]
        body = json.dumps(
            {
                "id": str(number),
                "parameters": {"timeout": int(max(left, 0.001) * 1e6)},
                "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": data}],
            }
        )
        head = "POST /v2/models/m/infer HTTP/1.1\r\nhost: m\r\nconnection: close\r\n"
        head += f"content-length: {len(body)}\r\n\r\n"
        until = min(deadline, time.monotonic() + PATIENCE_S)
        status, said = read(exchange(self.addresses[router], (head + body).encode(), until))
        if status != 200:
            if status < 500:
                raise Wrong(f"{status} {said}")
            raise Failed(f"{status} {said.get('reason')}")
        if said["id"] != str(number) or said["outputs"][0]["data"] != data:
            raise Wrong("the answer to another request")

    def note(self, urgent, outcome, number, due, tried=()):
        took = time.monotonic() - due
        with self.lock:
            self.outcomes[urgent, outcome] += 1
            if outcome.startswith("answered"):
                self.answers[number] += 1
                self.times[urgent].append(took)
            else:
                self.lost.append((due, number, urgent, outcome, tried))

    def end(self):
        self.over.set()
        for thread in self.threads:
            thread.join()
        self.pool.shutdown()

    def count(self, urgent, start):
        mine = ((outcome, n) for (one, outcome), n in self.outcomes.items() if one == urgent)
        return sum(n for outcome, n in mine if outcome.startswith(start))
