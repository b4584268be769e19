"""What the worker says of a GPU is what NVIDIA's own client says, through every geometry.

Both load the fake library (worker/fakenvml); the worker's program `gpus` cuts the GPU, and after
each cut the two must agree on every device, instance and UUID. The geometries are found here anew
from the table, so that the worker's own search for them is checked too.
"""

import ctypes
import itertools
import json
import os
import shutil
import subprocess
from pathlib import Path

import pynvml as nvml
import pytest

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
BUILD = Path(os.environ.get("SLUICE_BUILD", TARGET / "release"))
PROGRAM = BUILD / "examples" / "gpus"
LIBRARY = BUILD / "libfakenvml.so"
TABLE = json.loads((ROOT / "worker/mig/data/profiles.json").read_text())
KINDS = ["A100-80GB", "H100-80GB"]


@pytest.fixture(params=KINDS)
def machine(request, tmp_path, monkeypatch):
    """A machine with one GPU of the kind, MIG on and uncut."""
    library = tmp_path / "libnvidia-ml.so.1"
    shutil.copy(LIBRARY, library)
    state = {
        "driver": "580.95.05",
        "privileged": True,
        "devices": [
            {
                "kind": request.param,
                "name": f"NVIDIA {request.param}",
                "uuid": "GPU-5a3e1c1f-8f8e-4d4b-a0b5-0d8f2b2f6c11",
                "mig": "On",
                "instances": [],
                "pids": [],
                "power_mw": 61500,
                "clock_mhz": 1410,
                "temperature_c": 34,
                "ecc": [3, 0],
            }
        ],
        "events": [],
        "faults": [],
        "made": 0,
        "attacks": 0,
    }
    (tmp_path / "nvml.json").write_text(json.dumps(state))
    # The client looks its library up by name; this is the name, loaded from here.
    monkeypatch.setattr(nvml, "nvmlLib", ctypes.CDLL(str(library)))
    monkeypatch.setattr(nvml, "_nvmlGetFunctionPointer_cache", {})
    nvml.nvmlInit()
    yield request.param, library
    nvml.nvmlShutdown()


def ours(library, *change):
    """What the worker says, after a change if there is one."""
    asked = subprocess.run([PROGRAM, library, *change], capture_output=True, text=True, check=False)
    assert asked.returncode == 0, asked.stderr
    (gpu,) = json.loads(asked.stdout)
    return gpu


def theirs():
    """The same, by NVIDIA's client."""
    assert nvml.nvmlDeviceGetCount() == 1
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    profiles = offered(gpu)
    return {
        "uuid": nvml.nvmlDeviceGetUUID(gpu),
        "name": nvml.nvmlDeviceGetName(gpu),
        "mode": {0: "Off", 1: "On"}[nvml.nvmlDeviceGetMigMode(gpu)[0]],
        "memory_bytes": nvml.nvmlDeviceGetMemoryInfo(gpu).total,
        "power_milliwatts": nvml.nvmlDeviceGetPowerUsage(gpu),
        "clock_mhz": nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
        "temperature_celsius": nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
        "slices": slices(gpu, profiles),
        "offered": {
            f"{name}@{start}" for name, info in profiles.items() for start in placements(gpu, info)
        },
        "room": {
            name: nvml.nvmlDeviceGetGpuInstanceRemainingCapacity(gpu, info.id)
            for name, info in profiles.items()
        },
    }


def offered(gpu):
    """The profiles of a GPU, by name."""
    found = {}
    for number in range(nvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        try:
            info = nvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu, number, version=2)
        except nvml.NVMLError_NotSupported:
            continue
        name = info.name.decode() if isinstance(info.name, bytes) else info.name
        found[name.removeprefix("MIG ")] = info
    return found


def placements(gpu, info):
    count = ctypes.c_uint()
    nvml.nvmlDeviceGetGpuInstancePossiblePlacements(gpu, info.id, None, ctypes.byref(count))
    room = (nvml.c_nvmlGpuInstancePlacement_t * count.value)()
    nvml.nvmlDeviceGetGpuInstancePossiblePlacements(gpu, info.id, room, ctypes.byref(count))
    return [placement.start for placement in room]


def slices(gpu, profiles):
    """Position, GPU instance, and MIG devices of every slice."""
    devices = mig_devices(gpu)
    found = []
    for name, info in profiles.items():
        room = (nvml.c_nvmlGpuInstance_t * info.instanceCount)()
        count = ctypes.c_uint()
        nvml.nvmlDeviceGetGpuInstances(gpu, info.id, room, ctypes.byref(count))
        for instance in room[: count.value]:
            instance = nvml.nvmlGpuInstanceGetInfo(instance)
            position = f"{name}@{instance.placement.start}"
            found.append((position, instance.id, devices.pop(instance.id, [])))
    assert not devices, "MIG devices without a GPU instance"
    return sorted(found)


def mig_devices(gpu):
    """The MIG devices by GPU instance: compute instance, UUID, memory."""
    found = {}
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        try:
            device = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index)
        except nvml.NVMLError_NotFound:
            continue
        uuid = nvml.nvmlDeviceGetUUID(device)
        parent = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device)
        assert nvml.nvmlDeviceGetUUID(parent) == nvml.nvmlDeviceGetUUID(gpu)
        instance = nvml.nvmlDeviceGetGpuInstanceId(device)
        compute = nvml.nvmlDeviceGetComputeInstanceId(device)
        memory = nvml.nvmlDeviceGetMemoryInfo(device).total
        found.setdefault(instance, []).append((compute, uuid, memory))
    return found


def agree(our, their):
    told = sorted(
        (
            slice["position"],
            slice["gpu_instance"],
            [(one["compute_instance"], one["uuid"], one["memory_bytes"]) for one in slice["compute"]],
        )
        for slice in our["slices"]
    )
    assert told == their["slices"]
    assert set(our["offered"]) == their["offered"]
    assert our["disagreements"] == []
    for key in their.keys() - {"slices", "offered"}:
        assert our[key] == their[key], key


def maximal(kind):
    """Every geometry without media and double-memory slices that has no room for another."""
    gpu = TABLE["gpus"][kind]
    places = [
        (profile["name"], start, profile["compute_slices"], profile["memory_slices"])
        for profile in gpu["profiles"]
        for start in profile["placement_starts"]
        if not profile["media_extensions"]
        and not (profile["compute_slices"] == 1 and profile["memory_slices"] > 1)
    ]
    most = {profile["name"]: profile["max_instances"] for profile in gpu["profiles"]}

    def legal(chosen):
        memory = [slot for _, start, _, size in chosen for slot in range(start, start + size)]
        names = [name for name, *_ in chosen]
        return (
            len(memory) == len(set(memory))
            and sum(compute for _, _, compute, _ in chosen) <= gpu["compute_slices"]
            and all(names.count(name) <= most[name] for name in names)
        )

    layers = [{frozenset()}]
    while layers[-1]:
        larger = {
            chosen | {place}
            for chosen, place in itertools.product(layers[-1], places)
            if place not in chosen and legal(chosen | {place})
        }
        layers.append(larger)
    every = set().union(*layers)
    full = [
        chosen
        for chosen in every
        if not any(chosen | {place} in every for place in places if place not in chosen)
    ]
    names = [sorted(f"{name}@{start}" for name, start, _, _ in chosen) for chosen in full]
    return sorted(names)


def test_worker_and_nvidia_agree_after_every_maximal_geometry(machine):
    kind, library = machine
    geometries = maximal(kind)
    assert len(geometries) == 19
    agree(ours(library), theirs())
    for wanted in geometries:
        our = ours(library, "0", ",".join(wanted))
        assert sorted(slice["position"] for slice in our["slices"]) == wanted
        assert all(slice["usable"] for slice in our["slices"])
        agree(our, theirs())


def test_worker_reports_what_nvidias_client_cut(machine):
    kind, library = machine
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    profiles = offered(gpu)
    for name in ("3g.40gb", "1g.10gb"):
        instance = nvml.nvmlDeviceCreateGpuInstance(gpu, profiles[name].id)
        shared = nvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
        info = nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, 0, shared)
        nvml.nvmlGpuInstanceCreateComputeInstance(instance, info.id)
    our = ours(library)
    agree(our, theirs())
    # One compute slice of three: it cannot be given to anyone whole.
    usable = {slice["position"]: slice["usable"] for slice in our["slices"]}
    assert usable == {"3g.40gb@0": False, "1g.10gb@4": True}
