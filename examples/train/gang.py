"""The ranks of one job, over plain sockets: rank 0 gathers what all have and sends one answer back.

Enough for a few ranks and a small model; a large one wants the rings of gloo or NCCL (see ddp.py).
The ranks trust one another, so the port belongs on a network that strangers do not reach.
"""

import json
import socket
import struct
import time

import job

# Ranks of a gang start together, and one may be paused for a while; longer, and it is gone.
WAIT_S = 120
HELLO_WAIT_S = 5
RETRY_S = 0.05
HELLO_BYTES = 4096
MESSAGE_BYTES = 64 << 20
LENGTH = struct.Struct("<I")


class Lost(Exception):
    """A rank of the gang cannot be heard any more."""


class Gang:
    """All ranks of a job. A gang of one has no sockets and the same methods."""

    def __init__(self, member, terms):
        """`terms` must be the same for all ranks."""
        self.member = member
        self.rank, self.world_size = member.rank, member.world_size
        self._hello = {"job": member.id, "world_size": self.world_size, "terms": terms}
        self._others = {}

    def meet(self):
        """Waits until all ranks are there."""
        if self.rank != 0:
            self._others[0] = join(self.member, self._hello | {"rank": self.rank})
        elif self.world_size > 1:
            self._admit_all()

    def gather(self, content):
        """What every rank has, in the order of ranks, for rank 0; the others get nothing."""
        if self.rank != 0:
            self._send(0, content)
            return None
        return [content] + [self._receive(rank) for rank in range(1, self.world_size)]

    def broadcast(self, content):
        """What rank 0 has, for every rank."""
        if self.rank != 0:
            return self._receive(0)
        for rank in range(1, self.world_size):
            self._send(rank, content)
        return content

    def close(self):
        """Leaves the gang."""
        for connection in self._others.values():
            connection.close()

    def _send(self, rank, content):
        try:
            send(self._others[rank], content)
        except OSError as error:
            raise Lost(f"rank {rank} is gone: {error}") from error

    def _receive(self, rank):
        try:
            return receive(self._others[rank], MESSAGE_BYTES)
        except OSError as error:
            raise Lost(f"rank {rank} is gone: {error}") from error

    def _admit_all(self):
        until = time.monotonic() + WAIT_S
        try:
            listener = socket.create_server(self.member.master)
        except OSError as error:
            address = "{}:{}".format(*self.member.master)
            raise job.Refused(f"rank 0 cannot listen on {address}: {error}") from error
        with listener:
            print(f"waiting for {self.world_size - 1} more", flush=True)
            listener.settimeout(RETRY_S)
            while len(self._others) < self.world_size - 1:
                here = len(self._others) + 1
                check(self.member, until, f"{here} of {self.world_size} ranks are there")
                try:
                    connection, _ = listener.accept()
                except TimeoutError:
                    continue
                self._admit(connection)

    def _admit(self, connection):
        """Takes in a rank, tells one that does not belong so, and drops a stranger."""
        connection.settimeout(HELLO_WAIT_S)
        try:
            theirs = json.loads(receive(connection, HELLO_BYTES))
            rank = theirs.get("rank") if isinstance(theirs, dict) else None
            refusal = self._refusal(rank, theirs)
            send(connection, refusal.encode())
        except (OSError, ValueError):
            connection.close()
            return
        if refusal:
            connection.close()
        else:
            settle(connection)
            self._others[rank] = connection

    def _refusal(self, rank, theirs):
        if rank not in range(1, self.world_size) or rank in self._others:
            return f"there is no place for a rank {rank} of {self.world_size}"
        if theirs != self._hello | {"rank": rank}:
            return f"rank {rank} was started as {theirs}, rank 0 as {self._hello}"
        return ""


def join(member, hello):
    """Finds rank 0 and is taken in."""
    until = time.monotonic() + WAIT_S
    refused = "it does not answer"
    while True:
        check(member, until, f"rank 0 at {member.master[0]}:{member.master[1]}: {refused}")
        try:
            connection = socket.create_connection(member.master, HELLO_WAIT_S)
        except OSError as error:
            refused = str(error)
            time.sleep(RETRY_S)
            continue
        settle(connection)
        try:
            send(connection, json.dumps(hello).encode())
            refusal = receive(connection, HELLO_BYTES).decode()
        except OSError as error:
            raise Lost(f"rank 0 is gone: {error}") from error
        if refusal:
            raise job.Refused(refusal)
        return connection


def check(member, until, state):
    """Ends the wait for a gang that is not wanted any more or does not come."""
    if member.stopping:
        raise Lost("stopped before the gang was whole")
    if time.monotonic() > until:
        raise Lost(f"waited {WAIT_S} s for the gang: {state}")


def settle(connection):
    """Makes a connection one between ranks: patient, and without delay for small messages."""
    connection.settimeout(WAIT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def send(connection, content):
    """Sends one message."""
    connection.sendall(LENGTH.pack(len(content)) + content)


def receive(connection, most):
    """Receives one message of at most so many bytes."""
    (length,) = LENGTH.unpack(exactly(connection, LENGTH.size))
    if length > most:
        raise OSError(f"it sent a message of {length} bytes; at most {most} are read")
    return exactly(connection, length)


def exactly(connection, length):
    """So many bytes, or an error if the other side closes before."""
    content = bytearray()
    while len(content) < length:
        piece = connection.recv(min(length - len(content), 1 << 20))
        if not piece:
            raise ConnectionError("it closed the connection")
        content += piece
    return bytes(content)
