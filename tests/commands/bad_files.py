"""Files that no command may take, and a few good ones to write over: what `bad_inputs` names."""

import gzip
import json
import lzma
import os
from pathlib import Path

import numpy as np

SWF = "".join(
    f"{n} {10 * n} 0 100 4 -1 -1 4 200 -1 1 {n % 3} 1 1 1 1 -1 -1\n" for n in range(1, 30)
)
HEADER = "; MaxNodes: 16\n; MaxProcs: 16\n"
CLUSTER = "nodes:\n  - {kind: a, count: 2, cpu: 8}\n"
GAP = "a row\tof,no kind;\nanother\n"


def make(folder: Path) -> None:
    """The files that the cases name, good ones and bad ones."""
    texts = {
        "good.swf": HEADER + SWF,
        "größe-日本.swf": HEADER + SWF,
        "empty.swf": "",
        "blank.swf": "\n\n  \n",
        "comments.swf": HEADER,
        "short.swf": HEADER + "1 2 3\n",
        "letters.swf": HEADER + SWF.replace("200", "two", 1),
        "nan.swf": HEADER + SWF.replace("200", "nan", 1),
        "huge.swf": HEADER + SWF.replace(" 4 ", " 9999999 ", 2),
        "negative.swf": HEADER + SWF.replace("1 10 0", "1 -10 0", 1),
        "twice.swf": HEADER + SWF + SWF.splitlines()[0] + "\n",
        "prose.txt": "Dear all,\n\nplease find the log attached.\n",
        "prose.csv": GAP,
        "page.html": "<!DOCTYPE html><p>nothing here</p>\n",
        "good.yaml": CLUSTER,
        "list.yaml": "- 1\n- 2\n",
        "word.yaml": "cluster\n",
        "tab.yaml": "nodes:\n\t- {kind: a}\n",
        "open.yaml": "nodes: [{kind: a, cpu: 8\n",
        "none.yaml": "",
        "nonodes.yaml": "nodes: []\n",
        "badkey.yaml": "nodes:\n  - {kind: a, count: 2, cpu: 8}\nprofil: {}\n",
        "nan.yaml": "nodes:\n  - {kind: a, count: 2, cpu: .nan}\n",
        "negative.yaml": "nodes:\n  - {kind: a, count: 2, cpu: -8}\n",
        "text.yaml": "nodes:\n  - {kind: a, count: two, cpu: 8}\n",
        "nought.yaml": "nodes:\n  - {kind: a, count: 0, cpu: 8}\n",
        "huge.yaml": "nodes:\n  - {kind: a, count: 1000000000000, cpu: 8}\n",
        "object.yaml": "!!python/object/apply:os.system ['true']\n",
        "sacct.txt": "JobID|Submit|Start\n1|yesterday|now\n",
        "sacct-cut.txt": "JobID|Submit|Start|End|NCPUS|ElapsedRaw\n1|2024-01-01T00:00:00|x\n",
        "nodes.txt": "NodeName=n1 CPUTot=8 RealMemory=1000 State=IDLE\n",
        "nodes-bad.txt": "NodeName=n1 CPUTot=many RealMemory=1000 State=IDLE\n",
        "open.json": '{"plans": [',
        "list.json": "[1, 2, 3]",
        "other.json": '{"what": "a note"}',
        "nan.json": '{"format": "trimtab gpu profile 1", "gpu": NaN}',
        "order.json": '{"pod_order": ["a"], "node_prefix": 3}',
        "config.json": '{"model_type": "llama"}',
        "model.json": '{"model_type": "abacus", "hidden_size": 8}',
        "runs.csv": "model,gpus\nllama-3-8b,8xH100\n",
        "runs-bad.csv": "model,gpus,step_s\nllama-3-8b,8xH100,soon\n",
        "nodes.csv": "sn,cpu_milli,memory_mib,gpu,model\nn0,x,1,1,A100\n",
        "pods.csv": "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\np,1\n",
        "load.csv": "m_1,1,2\nm_2,x,3\n",
        "notes.json": "what I wanted to remember\n",
        "notes.html": "what I wanted to remember\n",
        "mine.py": "def broken(:\n",
        "empty.py": "",
        "plain.py": "class Mine:\n    pass\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 256, 4096).astype(np.uint8).tobytes()
    whole = (HEADER + SWF).encode()
    datas = {
        "binary.swf": noise,
        "zeros.swf": bytes(1000),
        "cut.swf.gz": gzip.compress(whole)[:-20],
        "cut.swf.xz": lzma.compress(whole)[:-20],
        "noise.swf.gz": b"\x1f\x8b" + noise,
        "noise.parquet": b"PAR1" + noise + b"PAR1",
        "cut.parquet": b"PAR1" + noise[:100],
        "empty.parquet": b"",
        "noise.npz": b"PK\x03\x04" + noise,
        "empty.npz": b"",
        "noise.onnx": noise,
        "empty.onnx": b"",
        "utf16.yaml": CLUSTER.encode("utf-16")[:-1],
        "latin.yaml": "nodes:\n  - {kind: größe, cpu: 8}\n".encode("latin-1"),
        "latin.csv": "modèle,gpus\n".encode("latin-1"),
        "utf32.csv": "model,gpus\nllama-3-8b,8xH100\n".encode("utf-32"),
        "noise.zip": b"PK\x03\x04" + noise,
        "noise.pt": noise,
    }
    for name, data in datas.items():
        (folder / name).write_bytes(data)
    np.savez(folder / "other.npz", a=np.arange(3))
    (folder / "folder").mkdir()
    (folder / "full").mkdir()
    (folder / "full" / "notes.txt").write_text("mine\n")
    os.mkfifo(folder / "pipe.swf")
    os.mkfifo(folder / "pipe.json")
    (folder / "loop.swf").symlink_to("loop.swf")
    (folder / "gone.swf").symlink_to("nowhere.swf")
    (folder / "link.json").symlink_to("good.json")
    (folder / "good.json").write_text(json.dumps({"jobs": 1}))
    (folder / "link.html").symlink_to("good.swf")
