"""Splits run once, are reproducible, and can be interrupted."""

from __future__ import annotations

import dataclasses
import json
import sys
import types
import warnings
from concurrent.futures.process import BrokenProcessPool

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from reproduce.run import list_jobs, run_experiment, run_split, split_generator


def count_calls(experiment, column="same"):
    calls = []

    def counted(split):
        calls.append(split)
        return {"score": split}

    columns = {**experiment.columns, column: counted}
    return dataclasses.replace(experiment, columns=columns), calls


def test_every_split_of_every_row_and_column(fake, tmp_path):
    results = run_experiment(fake.TABLE, 5, tmp_path)
    assert results.rows == ["half"]
    assert list(results.splits["half"]) == [0, 1, 2, 3, 4]
    assert results.values("half", "same", "list").shape == (5, 2)
    drawn = [fake.draw_number(0.5, split_generator("table1", i)) for i in range(5)]
    np.testing.assert_array_equal(results.values("half", "same", "score"), drawn)
    assert results.missing == {"moon": "the data set 'moon' was not found; fly there"}


def test_warnings_are_counted_without_their_numbers(fake, tmp_path):
    results = run_experiment(fake.TABLE, 3, tmp_path)
    assert results.warnings == {"warns": {"in float64 the gap is #": 3}}


def test_what_is_known_is_not_run_again(fake, tmp_path):
    experiment, calls = count_calls(fake.TABLE)
    first = run_experiment(experiment, 3, tmp_path)
    assert len(calls) == 3
    again = run_experiment(experiment, 3, tmp_path)
    assert len(calls) == 3
    assert again.splits == first.splits
    run_experiment(experiment, 5, tmp_path)
    assert len(calls) == 5


def test_a_report_on_what_is_there_runs_nothing(fake, tmp_path):
    experiment, calls = count_calls(fake.TABLE)
    nothing = run_experiment(experiment, 3, tmp_path, cached=True)
    assert nothing.rows == [] and "no split" in nothing.missing["half"]
    first = run_experiment(experiment, 3, tmp_path)
    list_jobs(experiment, 3, tmp_path)["half"][1].path.unlink()
    some = run_experiment(experiment, 8, tmp_path, cached=True)
    assert len(calls) == 3
    assert list(some.splits["half"]) == [0, 2]
    assert some.splits["half"][2] == first.splits["half"][2]


def test_variants_are_kept_apart(fake, tmp_path):
    experiment, calls = count_calls(fake.TABLE)
    run_experiment(experiment, 2, tmp_path)
    run_experiment(dataclasses.replace(experiment, variant="-small"), 2, tmp_path)
    assert len(calls) == 4


def test_a_new_column_is_added_to_old_splits(fake, tmp_path):
    old, calls = count_calls(fake.TABLE)
    run_experiment(old, 3, tmp_path)
    more = {**old.columns, "new": lambda split: {"score": -split}}
    results = run_experiment(dataclasses.replace(old, columns=more), 3, tmp_path)
    assert len(calls) == 3
    np.testing.assert_array_equal(
        results.values("half", "new", "score"), -results.values("half", "same", "score")
    )


def test_another_version_starts_anew(fake, tmp_path):
    experiment, calls = count_calls(fake.TABLE)
    run_experiment(experiment, 2, tmp_path)
    run_experiment(dataclasses.replace(experiment, version=2), 2, tmp_path)
    assert len(calls) == 4


def test_interrupted_run_goes_on(fake, tmp_path):
    def stop(split):
        raise KeyboardInterrupt

    experiment, calls = count_calls(fake.FIGURE)
    broken = dataclasses.replace(
        experiment, columns={**experiment.columns, "stop": stop}
    )
    with pytest.raises(KeyboardInterrupt):
        run_experiment(broken, 3, tmp_path)
    assert len(calls) == 1  # kept, although its split did not finish
    run_experiment(experiment, 3, tmp_path)
    assert len(calls) == 3


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[1]",
        "[" * 100_000,
        '{"same": "text"}',
        '{"same": {"score": "1"}}',
        '{"same": {"score": 1}, "warnings": {"same": [1]}}',
        '{"crc32": 1, "values": {"same": {"score": 1.0, "list": [1.0, 2.0]}}}',
        '{"crc32": {}}',
    ],
)
def test_broken_file_is_run_again(fake, tmp_path, content):
    job = list_jobs(fake.FIGURE, 1, tmp_path)["half"][0]
    job.path.parent.mkdir(parents=True)
    job.path.write_text(content, encoding="utf-8")
    with pytest.warns(UserWarning, match=r"0000\.json is damaged"):
        results = run_experiment(fake.FIGURE, 1, tmp_path)
    assert results.values("half", "same", "score").shape == (1,)
    assert job.done()["same"]["list"] == [1, 2]
    assert [path.name for path in job.path.parent.iterdir()] == [job.path.name]


def test_files_of_earlier_versions_have_no_checksum(fake, tmp_path):
    experiment, calls = count_calls(fake.FIGURE)
    job = list_jobs(experiment, 1, tmp_path)["half"][0]
    job.path.parent.mkdir(parents=True)
    job.path.write_text(json.dumps({"same": {"score": 0.25}}), encoding="utf-8")
    assert run_experiment(experiment, 1, tmp_path).mean("half", "same", "score") == 0.25
    assert not calls


def test_names_that_look_alike_have_files_of_their_own(fake, tmp_path):
    rows = {"A b": fake.half, "a-B": fake.half, "a b": fake.half}
    jobs = list_jobs(dataclasses.replace(fake.FIGURE, rows=rows), 2, tmp_path)
    assert len({job.path for row in jobs.values() for job in row}) == 6


def test_progress_is_told(fake, tmp_path):
    told = []
    run_experiment(fake.TABLE, 2, tmp_path, advance=lambda *n: told.append(n))
    assert told == [(0, 2), (1, 2), (2, 2)]
    run_experiment(fake.TABLE, 3, tmp_path, advance=lambda *n: told.append(n))
    assert told[3:] == [(2, 3), (3, 3)]


def test_processes_give_the_same(fake, tmp_path):
    one = run_experiment(fake.TABLE, 4, tmp_path / "one")
    two = run_experiment(fake.TABLE, 4, tmp_path / "two", jobs=2)
    assert one.splits == two.splits
    assert one.warnings == two.warnings


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_process_uses_one_thread_for_linear_algebra(fake, tmp_path, jobs):
    columns = {"same": fake.count_threads}
    experiment = dataclasses.replace(fake.TABLE, columns=columns)
    with threadpool_limits(limits=2):
        results = run_experiment(experiment, 2, tmp_path, jobs=jobs)
    assert results.mean("half", "same", "score") == 1


def test_dask_is_used_or_asked_for(fake, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(
        ValueError, match=r"package 'distributed': pip install .*\[dask\]"
    ):
        run_experiment(fake.FIGURE, 1, tmp_path, dask="tcp://here:1")
    asked = []

    class Client:
        def __init__(self, address):
            asked.append(address)

        def __enter__(self):
            return self

        def __exit__(self, *error):
            asked.append("closed")

    from joblib import parallel_config

    def config(backend):
        asked.append(backend)
        return parallel_config(backend="sequential")

    fakes = types.SimpleNamespace(Client=Client)
    monkeypatch.setitem(sys.modules, "distributed", fakes)
    monkeypatch.setattr("reproduce.run.parallel_config", config)
    results = run_experiment(fake.FIGURE, 1, tmp_path, dask="tcp://here:1")
    assert asked == ["tcp://here:1", "dask", "closed"]
    assert results.rows == ["half"]


def test_finished_split_is_left_alone(fake, tmp_path):
    run_experiment(fake.FIGURE, 1, tmp_path)
    job = list_jobs(fake.FIGURE, 1, tmp_path)["half"][0]
    before = job.path.read_bytes()
    run_split(fake.FIGURE, job)
    assert job.path.read_bytes() == before


def test_workers_are_let_go_if_nobody_waits_for_them(fake, tmp_path, monkeypatch):
    ended = []

    def pieces(work):
        try:
            yield from work
        finally:
            warnings.warn("2 tasks have been cancelled", UserWarning, stacklevel=1)
            ended.append("workers")

    def interrupt(finished, total):
        if finished:
            raise KeyboardInterrupt

    monkeypatch.setattr("reproduce.run.Parallel", lambda **options: pieces)
    with pytest.raises(KeyboardInterrupt) as caught:  # which holds on to every frame
        run_experiment(fake.TABLE, 2, tmp_path, advance=interrupt)
    assert caught and ended == ["workers"]


def test_a_worker_that_is_killed_is_one_sentence(fake, tmp_path, monkeypatch):
    def killed(work):
        raise BrokenProcessPool("The exit codes of the workers are {SIGKILL(-9)}")
        yield

    monkeypatch.setattr("reproduce.run.Parallel", lambda **options: killed)
    words = "worker process was killed.*finished are kept.*perhaps with fewer jobs"
    with pytest.raises(ChildProcessError, match=words):
        run_experiment(fake.TABLE, 2, tmp_path, jobs=2)
