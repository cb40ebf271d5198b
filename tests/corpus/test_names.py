"""Short names and what they stand for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anmi.corpus.graph_tables import Names, Resolver, last_segment

SEGMENTS = st.lists(st.sampled_from(["a", "b", "c d", "HIV", "<x>"]), min_size=1, max_size=4)


@pytest.mark.parametrize(
    ("uri", "label"),
    [
        ("http://dbpedia.org/resource/Buzz_Aldrin", "Buzz Aldrin"),
        ("http://x.org/city#Aarhus", "Aarhus"),
        ("http://x.org/a/b/", "b"),
        ("numpy.linalg.norm", "numpy.linalg.norm"),
        ("http://x.org/_", "http://x.org/_"),
        ("/", "/"),
    ],
)
def test_last_segment(uri, label):
    assert last_segment(uri) == label


@given(st.lists(SEGMENTS, min_size=1, max_size=8), SEGMENTS)
def test_a_name_stands_for_every_uri_that_ends_in_it(paths, wanted):
    uris = {f"http://x.org/{'/'.join(path)}" for path in paths}
    name = "/".join(wanted)
    names = Names(uris)
    assert set(names.of(name)) == {uri for uri in uris if uri.endswith(f"/{name}")}
    assert all(names.of(uri) == (uri,) and names.best(uri) == uri for uri in uris)
    if len(names.of(name)) == 1:
        assert names.best(name) == names.of(name)[0]


def test_the_name_in_the_common_place_is_meant():
    names = Names(["http://x.org/r/AIDS", "http://x.org/r/HIV/AIDS", "http://x.org/r/b", "http://y.org/b"])
    assert names.best("AIDS") == "http://x.org/r/AIDS"
    assert names.best("HIV/AIDS") == "http://x.org/r/HIV/AIDS"
    assert names.best("b") == "b", "two places, and nothing tells which"
    assert names.best("nowhere") == "nowhere"


def test_the_graph_tells_what_an_ambiguous_name_means():
    entities = Names(["http://x.org/b", "http://y.org/b", "http://x.org/c"])
    known = {("http://y.org/b", "http://o.org/in", "http://x.org/c")}
    resolve = Resolver(entities, Names(["http://o.org/in"]), known)
    assert resolve(("b", "in", "c")) == ("http://y.org/b", "http://o.org/in", "http://x.org/c")
    assert resolve(("b", "in", "b")) == ("b", "http://o.org/in", "b")
    assert resolve(("c", "near", '"b"')) == ("http://x.org/c", "near", '"b"')


def test_a_literal_is_found_with_and_without_its_quotation_marks():
    entities = Names(["u:h/a", "u:h/Rome"])
    known = {("u:h/a", "r", '"text"'), ("u:h/a", "r", "25.0"), ("u:h/a", "r", "Rome"), ("u:h/a", "s", "u:h/Rome")}
    resolve = Resolver(entities, Names([]), known)
    assert resolve(("a", "r", "text"))[2] == '"text"'
    assert resolve(("a", "r", '"25.0"'))[2] == "25.0"
    assert resolve(("a", "r", "Rome"))[2] == "Rome", "the graph has this very triple"
    assert resolve(("a", "s", "Rome"))[2] == "u:h/Rome"
    assert resolve(("a", "r", '"'))[2] == '"'
