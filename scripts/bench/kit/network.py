"""Hosts of a network of their own, between which it can be cut.

Each host is a network namespace with an address on one bridge. A cut is a neighbour whose hardware
address is nobody's: what is sent there is lost in silence, as in a network that fails, on connections
that stand and on new ones. All of it lives in namespaces of this process and ends with it.
"""

import os
import subprocess
import sys

SUBNET = "10.213.0"
NOBODY = "02:00:00:00:00:01"
INSIDE = "SLUICE_BENCH_NETWORK"


def enter():
    """Goes on in namespaces of its own; the caller starts anew there."""
    if INSIDE not in os.environ:
        os.environ[INSIDE] = "1"
        os.execvp("unshare", ["unshare", "-rnm", sys.executable, *sys.argv])
    run("mount -t tmpfs none /run")
    os.makedirs("/run/netns")
    run("ip link set lo up")
    run("ip link add bridge type bridge")
    run(f"ip addr add {SUBNET}.1/24 dev bridge")
    run("ip link set bridge up")


def run(command):
    subprocess.run(command.split(), check=True)


class Host:
    """One machine of the network."""

    known = 1

    def __init__(self, name):
        Host.known += 1
        self.name, self.address = name, f"{SUBNET}.{Host.known}"
        run(f"ip netns add {name}")
        run(f"ip link add v-{name} type veth peer name eth0 netns {name}")
        run(f"ip link set v-{name} master bridge up")
        run(f"ip -n {name} addr add {self.address}/24 dev eth0")
        run(f"ip -n {name} link set lo up")
        run(f"ip -n {name} link set eth0 up")

    def command(self, command):
        """The same, on this host."""
        return ["ip", "netns", "exec", self.name, *(str(word) for word in command)]


def cut(one, other):
    for here, there in ((one, other), (other, one)):
        run(f"ip -n {here.name} neigh replace {there.address} lladdr {NOBODY} nud permanent dev eth0")


def mend(one, other):
    for here, there in ((one, other), (other, one)):
        run(f"ip -n {here.name} neigh del {there.address} dev eth0")
