from anmi.report.funnel import funnel


def test_the_funnel_tells_what_each_step_took_and_all_of_it_adds_up(make):
    rows = [*make().funnel, {"step": "idle", "kind": "rejected", "candidates": 0, "queries": 0}]
    figure = funnel(rows)
    ways = {trace["name"]: dict(zip(trace["y"], trace["x"], strict=True)) for trace in figure.spec["data"]}
    assert ways["all"] == {"all candidates": 98_412}
    assert ways["negatives"] == {"→ negatives": 6_111}
    assert sum(sum(way.values()) for name, way in ways.items() if name != "all") == 98_412
    assert ways["promoted"] == {"promote": 455} and ways["uncertain"] == {"uncertain": 1_500}
    assert figure.spec["layout"]["xaxis"]["type"] == "log"
    assert figure.spec["layout"]["yaxis"]["categoryarray"][-1] == "all candidates"
    texts = [text for trace in figure.spec["data"] for text in trace["text"]]
    assert "455 (4.6 ‰)" in texts and "20,000 (203 ‰)" in texts
    # A bar of nothing has no length on such a scale: it is named instead.
    assert figure.note.endswith("Nothing was taken by idle.")
