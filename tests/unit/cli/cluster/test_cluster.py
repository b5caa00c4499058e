"""`trimtab cluster`: a file from dumps, and what it says."""

import json

from trimtab.traces.scenes.cluster_file import read_cluster


def test_two_dumps_make_a_cluster_file_that_is_shown(command, tmp_path):
    folder = tmp_path / "site [1]"
    assert command("cluster", "example", "--out", folder, "--jobs", 20)[0] == 0
    to = folder / "cluster.yaml"
    dumps = (folder / "partitions.txt", folder / "nodes.txt")
    code, _, err = command("cluster", "from-slurm", *dumps, "--out", to)
    assert code == 0 and "note: cpu05: down" in err
    assert err.splitlines()[-1].endswith("8 nodes (2 a100, 4 cpu, 2 v100); 2 partitions")
    assert "# Written by trimtab cluster from-slurm" in to.read_text()
    assert len(read_cluster(to)[0]) == 8
    code, out, _ = command("cluster", "show", to)
    assert code == 0 and "a100-[01-02],v100-[01-02]" in out and "nvlink" in out
    code, out, _ = command("cluster", "show", to, "--json", "-")
    told = json.loads(out)
    assert told["nodes"] == 8 and [row["nodes"] for row in told["kinds"]] == [2, 4, 2]
    assert told["partitions"][1]["max_s"] == 172800 and told["partitions"][1]["max_nodes"] is None


def test_kubernetes_nodes_make_a_cluster_file(command, tmp_path):
    status = {"allocatable": {"cpu": "4", "memory": "8Gi"}}
    nodes = [{"metadata": {"name": f"n{number}"}, "status": status} for number in range(3)]
    (tmp_path / "nodes.json").write_text(json.dumps({"items": nodes}))
    to = tmp_path / "cluster.yaml"
    code, _, err = command("cluster", "from-kubernetes", tmp_path / "nodes.json", "--out", to)
    assert code == 0 and err.strip().endswith("3 nodes (3 cpu)")
    assert command("cluster", "show", to)[0] == 0


def test_a_dump_is_never_written_over(command, tmp_path):
    dump = tmp_path / "nodes.yaml"
    dump.write_text("NodeName=a CPUTot=4 RealMemory=1000\n")
    code, _, err = command("cluster", "from-slurm", dump, "--out", dump)
    assert code == 2 and "would be lost" in err
    assert dump.read_text().startswith("NodeName=a")


def test_a_wrong_dump_is_one_sentence(command, tmp_path):
    (tmp_path / "a.txt").write_text("nothing of the kind\n")
    code, _, err = command(
        "cluster", "from-slurm", tmp_path / "a.txt", "--out", tmp_path / "c.yaml"
    )
    assert code == 2 and "drop it" in err and "Traceback" not in err
    assert not (tmp_path / "c.yaml").exists()
