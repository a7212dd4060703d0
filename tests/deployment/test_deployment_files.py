"""Deployments as files: what is written is read back, and what cannot be read is told by its line."""

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from msrl.deployment import Deployment, Host
from msrl.errors import UsageError
from msrl.feasibility import Setting, check

WHOLE = """\
distribution = "single-learner-coarse"
backend = "ray"
actors = 4
learners = 2
max_lag = 3
address = "10.0.0.1:6379"
devices = 2
passes = "-fuse-instances"
worker_timeout = 90

[[hosts]]
name = "10.0.0.2"

[[hosts]]
name = "10.0.0.3"
devices = 1
"""


def test_every_field(tmp_path):
    file = tmp_path / "cluster.toml"
    file.write_text(WHOLE)
    found = Deployment.from_file(file)
    assert found == Deployment("single-learner-coarse", "ray", 4, 2, 3, "10.0.0.1:6379",
                               (Host("10.0.0.2"), Host("10.0.0.3", 1)), 2, "-fuse-instances", 90)
    assert found.to_toml() == WHOLE


text = st.text(st.characters(exclude_categories=("Cs",)))
number = st.integers(1, 2**40)


@settings(deadline=None)
@given(st.builds(Deployment, distribution=text, backend=text, actors=number, learners=number,
                 max_lag=st.none() | number, address=st.none() | text.filter(bool), devices=st.none() | number,
                 hosts=st.lists(st.builds(Host, text, st.none() | number), max_size=3).map(tuple), passes=text,
                 worker_timeout=st.none() | number))
def test_what_is_written_is_read_back(tmp_path_factory, deployment):
    file = tmp_path_factory.getbasetemp() / "written.toml"
    file.write_bytes(deployment.to_toml().encode())
    assert Deployment.from_file(file) == deployment


def test_a_backend_that_was_not_chosen_goes_along_with_the_distribution():
    assert Deployment().backend == "inline"
    assert Deployment("single-learner-fine").backend == "threads"
    assert Deployment().replace(distribution="single-learner-fine").backend == "threads"
    assert Deployment("single-learner-fine", "inline").replace(actors=2).backend == "inline"
    assert Deployment("single-learner-fine").replace(distribution="local", backend="threads").backend == "threads"


BAD = {
    "unknown key": ('backend = "inline"\nactor = 2\n', """\
A deployment has no 'actor'.

  d.toml:2
    2 | actor = 2
        ^^^^^

It has distribution, backend, actors, learners, max_lag, address, hosts, devices, passes, worker_timeout.
Did you mean actors?
See docs/distributions.md."""),
    "a key like no other": ("zzz = 2\n", """\
A deployment has no 'zzz'.

  d.toml:1
    1 | zzz = 2
        ^^^

It has distribution, backend, actors, learners, max_lag, address, hosts, devices, passes, worker_timeout.
Use one of these.
See docs/distributions.md."""),
    "a number in quotes": ('  actors = "2"\n', """\
`actors` in d.toml is '2'.

  d.toml:1
    1 |   actors = "2"
          ^^^^^^

It must be a whole number.
Write, for instance: actors = 2.
See docs/distributions.md."""),
    "a truth for a number": ("learners = true\n", """\
`learners` in d.toml is True.

  d.toml:1
    1 | learners = true
        ^^^^^^^^

It must be a whole number.
Write, for instance: learners = 2.
See docs/distributions.md."""),
    "a list for a word": ('distribution = ["local"]\n', """\
`distribution` in d.toml is ['local'].

  d.toml:1
    1 | distribution = ["local"]
        ^^^^^^^^^^^^

It must be text in quotes.
Write, for instance: distribution = "local".
See docs/distributions.md."""),
    "a host's unknown key": ('[[hosts]]\nname = "a"\ngpus = 4\n', """\
A host has no 'gpus'.

  d.toml:3
    3 | gpus = 4
        ^^^^

It has name, devices.
Use one of these.
See docs/distributions.md."""),
    "a host without a name": ("[[hosts]]\ndevices = 4\n", """\
A host in d.toml has no name.

  d.toml:1
    1 | [[hosts]]
          ^^^^^

Machines are told apart by their addresses.
Add a line like: name = "10.0.0.2".
See docs/distributions.md."""),
    "hosts that are words": ('hosts = ["a", "b"]\n', """\
`hosts` in d.toml is ['a', 'b'].

  d.toml:1
    1 | hosts = ["a", "b"]
        ^^^^^

It is a list of tables, one for each machine.
Write, for each: [[hosts]], then name = "10.0.0.2", then devices = 1.
See docs/distributions.md."""),
    "no TOML": ("actors = 2\nbackend: threads\n", """\
The deployment d.toml is not TOML.

  d.toml:2
    2 | backend: threads
               ^

Expected '=' after a key in a key/value pair.
Write lines like: actors = 2, or: backend = "threads".
See docs/distributions.md."""),
    "an open end": ('backend = "threads', """\
The deployment d.toml is not TOML.
Unterminated string (at end of document).
Write lines like: actors = 2, or: backend = "threads".
See docs/distributions.md."""),
}


@pytest.mark.parametrize("case", BAD)
def test_files_that_are_no_deployments(case, tmp_path, monkeypatch):
    content, message = BAD[case]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d.toml").write_text(content)
    with pytest.raises(UsageError) as caught:
        Deployment.from_file("d.toml")
    assert str(caught.value) == message


def test_files_that_cannot_be_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "picture.toml").write_bytes(b"\x89PNG\xff")
    for name, why in {"none.toml": "No such file or directory", ".": "Is a directory",
                      "picture.toml": "it is not text"}.items():
        with pytest.raises(UsageError) as caught:
            Deployment.from_file(name)
        assert str(caught.value) == f"""\
The deployment {name} cannot be read.
{why}.
Name a TOML file, as `msrl train` leaves one in its run folder.
See docs/distributions.md."""


PIECES = st.binary(max_size=4) | st.sampled_from([
    b"\n", b"\r", b"=", b"[[hosts]]", b"[hosts]", b"[x]\n", b'"', b"'''", b"-1", b"0", b"9" * 5000, b"1e400", b"nan",
    b"true", b"1979-05-27", b"[" * 3000, b"{a={", b"a.b.c = 1\n", b"\\u0000", b"\\ud800", b"\x00", b"\xef\xbb\xbf",
    b"hosts = 3\n", b"local", b"central-async", b"/", b"../x.py:X", b"multi-learner", b"threads", b"#"])
WORDS = re.findall(r"\w+|\W", WHOLE)


@example([(WORDS.index("4"), 1, b"9" * 5000)]).via("no number that Python reads")
@example([(WORDS.index("4"), 1, b"[" * 3000)]).via("deeper than Python goes")
@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(WORDS) - 1), st.integers(0, 8), PIECES), min_size=1, max_size=4))
def test_whatever_a_file_says_is_taken_or_refused(tmp_path_factory, changes):
    words = [word.encode() for word in WORDS]
    for start, gone, new in changes:
        words[start:start + gone] = [new]
    file = tmp_path_factory.getbasetemp() / "changed.toml"
    file.write_bytes(b"".join(words))
    try:
        check(Deployment.from_file(file), Setting("jax:CartPole-v1", traceable=True, agents=0, num_envs=8, shards=4))
    except UsageError as error:
        assert str(error)


def test_switches_of_passes():
    assert Deployment(passes="-fuse-instances, +overlap").switches() == {"fuse-instances": False, "overlap": True}
    assert Deployment().switches() == {}
    assert Deployment(passes="+overlap,-overlap").switches() == {"overlap": False}
    with pytest.raises(UsageError) as caught:
        Deployment(passes="overlap").switches()
    assert str(caught.value) == """\
'overlap' does not say whether to switch a pass on or off.
Passes are written with a sign.
Write +overlap or -overlap."""
