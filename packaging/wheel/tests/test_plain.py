"""Tests of the installed wheel in a Python that runs without Remora's device."""

import io
import json
import os
import subprocess
import sys

import pytest
import remora
import remora_rdma.results
from remora_rdma.activation import other_library

# Prints the number of devices that libibverbs.so.1 of this process knows.
COUNT = """
import ctypes
verbs = ctypes.CDLL({name!r})
verbs.ibv_get_device_list.restype = ctypes.c_void_p
count = ctypes.c_int()
assert verbs.ibv_get_device_list(ctypes.byref(count))
print(count.value)
"""


def python(text, **options):
    """Runs a text in a Python of its own."""
    return subprocess.run([sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60, **options)


@pytest.mark.parametrize("name", ["libibverbs.so.1", "libibverbs.so"])
def test_an_activated_process_has_a_device(name):
    done = python("import remora; remora.activate(address='127.0.0.9', alone=True)" + COUNT.format(name=name))
    assert done.stdout == "1\n", done.stderr


def test_children_of_an_activated_process_have_the_device():
    done = python("import remora, subprocess; remora.activate(); subprocess.run(['ibv_devices'], check=True)")
    assert "remora0" in done.stdout, done.stderr


def test_activation_behind_another_libibverbs_names_its_file():
    text = "import ctypes; ctypes.CDLL('libibverbs.so.1'); import remora; remora.activate()"
    done = python(text, env={**os.environ, "LD_LIBRARY_PATH": ""})
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1
    assert "AlreadyLoaded: cannot activate Remora: /" in last and "libibverbs.so.1" in last


def test_copies_of_other_wheels_and_links_are_recognised(tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    files = [f"{own}/libibverbs.so.1", "/usr/lib/libc.so.6", "/site/libibverbs-1de1263b.so.1.14.48.0"]
    assert other_library(files, str(own)) == files[2]
    assert other_library(files[:2], str(own)) is None
    link = tmp_path / "link"
    link.symlink_to(own)
    assert other_library([f"{own}/libibverbs.so.1"], str(link)) is None


def test_an_unknown_option_is_refused_by_its_name():
    with pytest.raises(TypeError, match="no option adress"):
        remora.environment(adress="127.0.0.1")


def test_benchmarks_become_typed_measurements():
    record = {"bench": "verbs", "case": "shm/read/64", "metric": "latency_p50", "unit": "ns", "value": 1200.5, "rounds": [1, 2], "new": 1}
    text = json.dumps(record) + "\n\n" + json.dumps({"host": "other"}) + "\n"
    (measured,) = remora.measurements(io.StringIO(text))
    assert (measured.case, measured.value, measured.baseline) == ("shm/read/64", 1200.5, None)
    with pytest.raises(ValueError, match="line 1 is no JSON"):
        remora.measurements(io.StringIO("{"))


def test_a_run_of_the_simulator_becomes_typed_flows(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "summary.json").write_text('{"flows": 1, "slowdown_mean": null}')
    (out / "flows.csv").write_text("id,src,dst,bytes,start_ps,fct_ps,alone_ps,slowdown,status\n0,1,2,1000,0,5000,4000,1.25,done\n")
    (out / "pauses.csv").write_text("time_ps,node,port,classes,quanta\n4826080,0,1,8,65535\n")
    run = remora.run(out)
    (flow,) = run.flows()
    assert (flow.dst, flow.slowdown, flow.status) == (2, 1.25, "done")
    assert run.table("pauses")[0]["quanta"] == 65535
    with pytest.raises(FileNotFoundError):
        remora.run(tmp_path)


def test_columns_of_a_table_are_those_of_the_simulator():
    names = [field.name for field in remora_rdma.results.fields(remora.Flow)]
    assert names == ["id", "src", "dst", "bytes", "start_ps", "fct_ps", "alone_ps", "slowdown", "status"]


def test_a_file_that_is_no_capture_is_refused(tmp_path):
    file = tmp_path / "text"
    file.write_text("a text that is long enough")
    with pytest.raises(ValueError, match="no pcapng file"):
        list(remora.packets(file))
