# SPDX-License-Identifier: Apache-2.0
"""A switch answers while its program is compiled, and says what came of that."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import grpc
import pytest
from p4.v1 import p4runtime_pb2_grpc

from canary_softswitch.device.messages import p4info_pb2, p4runtime_pb2
from testbed.softswitch.tests.server.client import PROGRAMS, ROOT, Client, Process, p4info
from testbed.softswitch.tests.server.thrift_client import RegisterClient
from tests.patience import PATIENCE_S

RATES = PROGRAMS / "rates.json"
REPEATER = PROGRAMS / "repeater.json"
PROGRAM = 'grep -q "ss_table_add(" "$file"'  # and not the code of the ports


def compiler(folder: Path, script: str) -> str:
    """A C compiler that runs a script before it compiles a program."""
    path = folder / "slow-cc"
    path.write_text(f"""#!/bin/sh
for file; do :; done
case $file in *program.c) {script};; esac
exec gcc "$@"
""")
    path.chmod(0o755)
    return str(path)


def test_it_answers_while_it_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = tmp_path / "gate"
    until = f"while ! test -e {gate}; do sleep 0.05; done"
    monkeypatch.setenv("CC", compiler(tmp_path, f"if {PROGRAM}; then {until}; fi"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with Process(str(REPEATER)) as p, grpc.insecure_channel(p.grpc) as channel:
        stub = p4runtime_pb2_grpc.P4RuntimeStub(channel)
        assert stub.Capabilities(p4runtime_pb2.CapabilitiesRequest()).p4runtime_api_version
        with Client(p.grpc) as c:  # arbitration needs no program
            call = stub.GetForwardingPipelineConfig.future(
                p4runtime_pb2.GetForwardingPipelineConfigRequest(device_id=c.device)
            )
            time.sleep(0.3)
            assert not call.done()
            gate.touch()
            assert call.result(timeout=PATIENCE_S).config.p4_device_config == REPEATER.read_bytes()
        with RegisterClient(p.thrift) as r:
            assert len(r.config_md5()) == 16


def test_a_compiler_that_is_killed_is_told_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", compiler(tmp_path, f"if {PROGRAM}; then kill -9 $$; fi"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    run = subprocess.run(
        [
            *(sys.executable, "-m", "canary_softswitch.process.single", str(RATES)),
            *("--thrift-port", "0", "--", "--grpc-server-addr", "127.0.0.1:0"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    (line,) = run.stderr.splitlines()
    assert run.returncode == 1 and "was killed (Killed)" in line


def test_drop_port_and_a_program_that_stays() -> None:
    arguments = ("--cpu-port", "101", "--drop-port", "100", "--disable-swap")
    with Process("--no-p4", target=arguments) as p, Client(p.grpc) as c:
        info = p4info(PROGRAMS / "rates.p4info.txtpb")
        c.configure(info=info, code=RATES.read_bytes())
        with pytest.raises(grpc.RpcError) as e:
            c.configure(info=p4info_pb2.P4Info(), code=RATES.read_bytes() + b"\n")
        assert e.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        c.send(packet=p4runtime_pb2.PacketOut(payload=bytes(20)))
    assert "unknown_port" not in p.stdout  # port 100 was no port but a drop


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes the certificate")
def test_tls(tmp_path: Path) -> None:
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(key), "-out", str(cert)),
        ],
        check=True,
        capture_output=True,
    )
    tls = ("--grpc-server-ssl", "--grpc-server-cert", str(cert), "--grpc-server-key", str(key))
    with Process("--no-p4", target=tls) as p:
        trusted = grpc.ssl_channel_credentials(cert.read_bytes())
        request = p4runtime_pb2.CapabilitiesRequest()
        with grpc.secure_channel(p.grpc, trusted) as channel:
            stub = p4runtime_pb2_grpc.P4RuntimeStub(channel)
            assert stub.Capabilities(request, timeout=20).p4runtime_api_version
        with grpc.insecure_channel(p.grpc) as channel, pytest.raises(grpc.RpcError):
            p4runtime_pb2_grpc.P4RuntimeStub(channel).Capabilities(request, timeout=5)
