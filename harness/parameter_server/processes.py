"""What the processes of a run with a parameter server execute: one server, and the trainers."""

import os

import torch

from harness.parameter_server.assembly import Place, serving_of
from harness.parameter_server.training import trainer_of
from harness.records import Events
from harness.settings import Settings
from harness.training.worker import log_to, report


def serve(place: Place) -> None:
    """Be the server; never returns normally after a failure."""
    rank = Settings.read(place.run_dir)["workers"]
    log_to(place.run_dir / "logs" / "server.log")
    try:
        _serve(place, rank)
    except BaseException as error:
        _give_up(place, rank, error)


def _serve(place: Place, rank: int) -> None:
    settings, events = Settings.read(place.run_dir), Events(place.run_dir)
    torch.set_num_threads(1)
    serving = serving_of(settings, place)
    events.append("rank_ready", rank=rank)
    serving.run()
    service = serving.service
    events.append("server_finished", place.clock.time_s(), **service.told())
    events.append(
        "rank_finished",
        place.clock.time_s(),
        rank=rank,
        overruns=0,
        drifted=False,
        steps=service.rounds(),
        aside_bytes=[serving.sent_bytes, serving.received_bytes],
    )


def train(place: Place, rank: int, again: bool) -> None:
    """Be trainer `rank`; `again`: in the place of one that has died."""
    log_to(place.run_dir / "logs" / f"rank{rank}.log")
    try:
        _train(place, rank, again)
    except BaseException as error:
        _give_up(place, rank, error)


def _train(place: Place, rank: int, again: bool) -> None:
    settings, events = Settings.read(place.run_dir), Events(place.run_dir)
    threads = settings["workers"] * settings["parallel.threads"]
    cores = max(1, (os.cpu_count() or 1) // threads)
    torch.set_num_threads(cores)
    trainer = trainer_of(settings, place, rank, again, cores)
    events.append("rank_ready", rank=rank)
    trainer.run()
    events.append(
        "rank_finished",
        place.clock.time_s(),
        rank=rank,
        overruns=trainer.overruns,
        drifted=False,
        steps=trainer.done,
        aside_bytes=trainer.aside_bytes,
    )


def _give_up(place: Place, rank: int, error: BaseException) -> None:
    try:
        report(place.run_dir, rank, error)
    finally:
        os._exit(1)  # finalization would keep sockets open, and the others waiting
