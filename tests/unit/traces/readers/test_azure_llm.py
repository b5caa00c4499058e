"""Azure's LLM requests: tokens become seconds by two stated rates."""

from pathlib import Path

import pytest
from tests.data import found

from trimtab.errors import TraceError
from trimtab.traces import file_kind, read
from trimtab.traces.readers.azure_llm import read_azure_llm
from trimtab.traces.readers.parquet import load, save

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
ROWS = "2023-11-16 18:15:47.1805900,396,110\r\n2023-11-16 18:15:46.6805900,374,44\r\n"


def written(tmp_path, text: str) -> Path:
    (tmp_path / "requests.csv").write_text(text)
    return tmp_path / "requests.csv"


def test_a_request_is_a_job_of_prefill_and_decode_seconds(tmp_path):
    path = written(tmp_path, HEADER + ROWS)
    assert file_kind(path) == "azure-llm"
    work = read_azure_llm(path, prefill_hz=1000.0, decode_hz=20.0, batch=4)
    assert work.jobs["submit_s"].tolist() == [0, 0.5]
    # 374 / 1000 + 44 / 20 = .374 + 2.2; 396 / 1000 + 110 / 20 = .396 + 5.5
    assert work.truth["work_s"].tolist() == pytest.approx([2.574, 5.896])
    assert work.demand.tolist() == [[0.25], [0.25]]
    assert work.jobs["gpu_share"].tolist() == [0.25, 0.25]
    assert work.meta["modelled"] == {"prefill_hz": 1000.0, "decode_hz": 20.0, "batch": 4}


def test_tokens_are_kept_in_meta_through_a_file_and_a_window(tmp_path):
    save(read(written(tmp_path, HEADER + ROWS)), tmp_path / "requests.parquet")
    meta = load(tmp_path / "requests.parquet").window(1, 1).meta
    assert (meta["context_tokens"].tolist(), meta["generated_tokens"].tolist()) == ([396], [110])


def test_a_time_in_utc_is_read(tmp_path):
    text = "2024-05-10 00:00:00.250000+00:00,2162,5\n2024-05-10 00:00:00+00:00,2399,6\n"
    assert read(written(tmp_path, HEADER + text)).jobs["submit_s"].tolist() == [0, 0.25]


@pytest.mark.parametrize(
    ("field", "row"),
    [
        ("TIMESTAMP", "yesterday,1,2"),
        ("ContextTokens", "2023-11-16 18:15:47,-1,2"),
        ("GeneratedTokens", "2023-11-16 18:15:47,1,"),
        ("GeneratedTokens", "2023-11-16 18:15:47,1,2.5"),
    ],
)
def test_a_broken_row_is_refused_by_its_line_or_counted(tmp_path, field, row):
    path = written(tmp_path, HEADER + ROWS + row)
    with pytest.raises(TraceError, match=f":4: {field}=.*--lenient"):
        read(path, lenient=False)
    work = read(path, lenient=True)
    assert (len(work), sum(work.meta["dropped"].values())) == (2, 1)


def test_a_rate_of_zero_is_refused(tmp_path):
    with pytest.raises(TraceError, match="decode_hz=0"):
        read_azure_llm(written(tmp_path, HEADER + ROWS), decode_hz=0)


def test_the_public_requests_are_read_whole():
    work = read(found("data", "azure_llm", "AzureLLMInferenceTrace_conv.csv.xz"))
    assert len(work) == 19_366
    assert work.meta["context_tokens"].mean() == pytest.approx(1154.7, abs=0.05)
    assert work.meta["generated_tokens"].mean() == pytest.approx(211.1, abs=0.05)
