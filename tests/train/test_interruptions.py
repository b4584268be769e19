"""A training that is stopped, killed or shared ends as one that was left alone."""

import os
import select
import signal

import pytest
from conftest import ENDLESS, SAYS_WITHIN_S, STOPPED

import network

EPOCH_STEPS = 11


def one_epoch_after(step):
    """Options that end the training an epoch or two after `step`."""
    return "--epochs", str(step // EPOCH_STEPS + 2)


def test_a_training_restored_from_any_step_ends_with_the_same_bits():
    def go_on(training, until):
        while training.step < until:
            training.learn(network.add([training.gradients(0, 1)]))

    kept = []
    whole = network.Training(seed=3)
    for step in range(2 * EPOCH_STEPS + 1):
        go_on(whole, step)
        kept.append(whole.content())
    for step, content in enumerate(kept):
        again = network.Training(seed=3)
        again.restore(content)
        assert again.step == step
        go_on(again, whole.step)
        assert again.content() == whole.content(), f"restored at step {step}"


def test_stopped_again_and_again_it_ends_as_if_left_alone(trainings, undisturbed):
    reached = 0
    for _ in range(3):
        rank = trainings.start(*ENDLESS)
        rank.await_line("step")
        rank.send(signal.SIGTERM)
        rank.end(STOPPED)
        last = rank.last()
        assert last["step"] == last["checkpoint"] > reached
        reached = last["step"]
    length = one_epoch_after(reached)
    assert trainings.finish(*length) == undisturbed(*length)


def test_called_to_checkpoint_it_goes_on_and_a_kill_loses_only_what_came_after(
    trainings, undisturbed
):
    rank = trainings.start(*ENDLESS)
    rank.await_line("step")
    rank.send(signal.SIGUSR1)
    said = rank.await_line("checkpoint at step")
    rank.await_line("step")
    rank.await_line("step")
    rank.send(signal.SIGKILL)
    rank.end(-signal.SIGKILL)
    kept = int(said.split()[3])
    assert rank.last()["checkpoint"] == kept < rank.last()["step"]
    rank = trainings.start(*one_epoch_after(kept))
    rank.await_line(f"resumed at step {kept} ")
    rank.end()
    result = rank.last()["loss"], trainings.model.read_bytes()
    assert result == undisturbed(*one_epoch_after(kept))


def test_killed_while_it_writes_a_checkpoint_it_goes_on_from_the_one_before(trainings):
    assert trainings.finish("--epochs", "1")
    before = trainings.checkpoint.read_bytes()
    # Into a pipe, because its writer waits when it is full, which is before the file ends.
    half_written = trainings.checkpoint.with_name("digits.npz.new")
    os.mkfifo(half_written)
    rank = trainings.start(*ENDLESS)
    rank.await_line("step")
    rank.send(signal.SIGUSR1)
    # Open for both, so that this end does not wait for the other.
    with open(half_written, "r+b", buffering=0) as pipe:
        assert select.select([pipe], [], [], SAYS_WITHIN_S)[0], "nothing was written"
        content = pipe.read(4096)
        rank.send(signal.SIGKILL)
        rank.end(-signal.SIGKILL)
    assert 0 < len(content) < len(before) == trainings.checkpoint.stat().st_size
    assert trainings.checkpoint.read_bytes() == before
    half_written.unlink()
    half_written.write_bytes(content)
    rank = trainings.start("--epochs", "2")
    rank.await_line(f"resumed at step {EPOCH_STEPS} ")
    rank.end()


@pytest.mark.parametrize("world_size", [2, 3])
def test_several_ranks_end_with_the_bits_of_one(trainings, undisturbed, world_size):
    ranks = trainings.start_gang(world_size, "--epochs", "3")
    for rank in ranks:
        rank.end()
    loss, model = undisturbed("--epochs", "3")
    assert [rank.last()["loss"] for rank in ranks] == [loss] * world_size
    assert trainings.model.read_bytes() == model


@pytest.mark.parametrize("stopped", [0, 1])
def test_one_rank_told_to_stop_stops_all_at_one_step(trainings, undisturbed, stopped):
    ranks = trainings.start_gang(2, *ENDLESS)
    ranks[stopped].await_line("step 0")
    ranks[stopped].await_line("step")
    ranks[stopped].send(signal.SIGTERM)
    for rank in ranks:
        rank.end(STOPPED)
    assert ranks[0].last() == ranks[1].last()
    reached = ranks[0].last()["checkpoint"]
    assert reached == ranks[0].last()["step"] > 0
    length = one_epoch_after(reached)
    assert trainings.finish(*length) == undisturbed(*length), "one rank goes on for two"


def test_when_one_rank_is_killed_the_rest_keep_what_all_had_reached(trainings, undisturbed):
    ranks = trainings.start_gang(2, *ENDLESS)
    ranks[1].await_line("step 0")
    ranks[1].await_line("step")
    ranks[1].send(signal.SIGKILL)
    assert "rank 1 is gone" in ranks[0].end(1)
    reached = ranks[0].last()["checkpoint"]
    assert reached > 0
    length = one_epoch_after(reached)
    for rank in trainings.start_gang(2, *length):
        rank.end()
    assert trainings.model.read_bytes() == undisturbed(*length)[1]
