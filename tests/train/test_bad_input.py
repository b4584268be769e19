"""What the training is given and cannot use is named, and nothing is lost by it."""

import io
import json
import socket

import numpy as np
import pytest
from conftest import own_loopback

import job
import network


def altered(**changes):
    """A checkpoint whose description says something else."""
    training = network.Training(seed=20)
    about = {"program": "digits", "version": network.VERSION, "seed": 20, "step": 1} | changes
    file = io.BytesIO()
    arrays = {"values": training.values, "mean": training.mean, "square": training.square}
    np.savez(file, about=np.array(json.dumps(about)), **arrays)
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"weights", "it cannot be read"),
        (b"", "it cannot be read"),
        (altered()[:-1000], "it cannot be read"),
        (altered().replace(b"values", b"labels"), "it cannot be read"),
        (altered(version=2), "its version is 2, and this is version 1"),
        (altered(program="ddp"), "its program is ddp, and this is program digits"),
        (altered(seed=21), "its seed is 21, and this is seed 20"),
        (altered(step=-1), "are not those of this model"),
    ],
)
def test_a_checkpoint_of_something_else_says_what_is_wrong_with_it(content, complaint):
    training = network.Training(seed=20)
    with pytest.raises(job.Refused, match=complaint):
        training.restore(content)
    training.restore(altered())


def test_a_checkpoint_that_cannot_be_used_is_named_and_left_alone(trainings):
    trainings.checkpoint.parent.mkdir()
    trainings.checkpoint.write_bytes(b"")
    complaints = trainings.start("--epochs", "1").end(1)
    assert "checkpoint/digits.npz: it cannot be read" in complaints
    assert "remove it" in complaints
    assert len(complaints.splitlines()) == 1
    assert trainings.checkpoint.read_bytes() == b""
    assert not trainings.model.exists()


@pytest.mark.parametrize(
    ("environment", "complaint"),
    [
        ({"RANK": "one"}, "RANK is 'one'"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK is 2, of a WORLD_SIZE of 2"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE is '0'"),
        ({"MASTER_PORT": "-1"}, "MASTER_PORT is '-1'"),
    ],
)
def test_a_variable_that_makes_no_sense_is_named(environment, complaint):
    with pytest.raises(job.Refused, match=complaint):
        job.Job(environment)


@pytest.mark.parametrize(
    ("environment", "complaint"),
    [
        ({"WORLD_SIZE": "5"}, "a batch has 4 pieces"),
        ({"SLUICE_CHECKPOINT_DIR": "/dev/null/here"}, "/dev/null"),
        ({"SLUICE_PROGRESS_FILE": "absent/progress"}, "absent/progress"),
    ],
)
def test_a_variable_that_cannot_be_followed_ends_the_job_with_one_line(
    trainings, environment, complaint
):
    complaints = trainings.start("--epochs", "1", **environment).end(1)
    assert complaint in complaints
    assert len(complaints.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (("--epochs", "0"), 2, "--epochs: invalid whole number of at least 1, value: '0'"),
        (("--pause-ms", "x"), 2, "--pause-ms"),
        (("--export", "absent/digits.onnx"), 1, "absent/digits.onnx: there is no such folder"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused_before_training(
    trainings, arguments, code, complaint
):
    assert complaint in trainings.start(*arguments).end(code)
    assert not trainings.checkpoint.exists()


def test_ranks_that_were_started_for_different_trainings_do_not_mix(trainings):
    with socket.create_server((own_loopback(), 0)) as free:
        host, port = free.getsockname()
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": host, "MASTER_PORT": str(port)}
    trainings.start("--seed", "1", RANK="0", **common)
    other = trainings.start("--seed", "2", RANK="1", **common)
    complaints = other.end(1)
    assert "'seed': 1" in complaints and "'seed': 2" in complaints


def test_a_stranger_at_the_door_of_a_gang_is_sent_away(trainings):
    with socket.create_server((own_loopback(), 0)) as free:
        host, port = free.getsockname()
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": host, "MASTER_PORT": str(port)}
    first = trainings.start("--epochs", "1", RANK="0", **common)
    first.await_line("waiting for 1 more")
    with socket.create_connection((host, port)) as stranger:
        stranger.sendall(b"GET ")
        assert stranger.recv(1) == b""
    second = trainings.start("--epochs", "1", RANK="1", **common)
    first.end()
    second.end()
