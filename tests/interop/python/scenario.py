"""The scenario from grpcio: prints `ok NAME` or `not ok NAME: why` for each step, and `done`."""

import contextlib
import hashlib
import os
import sys
import time

import grpc
from ateenv.v1alpha import guest_pb2 as pb
from ateenv.v1alpha import guest_pb2_grpc as rpc

TARGET = os.environ["ATEENV_TARGET"]
LIMITED_TARGET = os.environ["ATEENV_LIMITED_TARGET"]
TOKEN = os.environ["ATEENV_TOKEN"]
INT64_MAX = 2**63 - 1
MIB = 1024 * 1024
HANGS = 60.0

steps = []


def step(function):
    steps.append(function)
    return function


@contextlib.contextmanager
def fails(code, *words):
    """The block must end with that status, with all the words in its details."""
    try:
        yield
    except grpc.RpcError as error:
        assert error.code() == code, f"want {code}, got {error.code()}: {error.details()}"
        for word in words:
            assert word in error.details(), f"{word!r} is not in {error.details()!r}"
    else:
        raise AssertionError(f"want {code}, got an answer")


class Agent:
    def __init__(self, target, token=None):
        self.channel = grpc.insecure_channel(target)
        self.processes = rpc.ProcessServiceStub(self.channel)
        self.files = rpc.FileSystemServiceStub(self.channel)
        self.metadata = [("authorization", f"Bearer {token}")] if token is not None else []

    def options(self, timeout=HANGS):
        return {"timeout": timeout, "metadata": self.metadata}

    def start(self, *command, **fields):
        request = pb.StartProcessRequest(command=command, **fields)
        return self.processes.StartProcess(request, **self.options()).process_id

    def get(self, process_id):
        request = pb.GetProcessRequest(process_id=process_id)
        return self.processes.GetProcess(request, **self.options())

    def kill(self, process_id):
        request = pb.KillProcessRequest(process_id=process_id)
        return self.processes.KillProcess(request, **self.options()).exit_code

    def stream(self, process_id, follow=True, out=0, err=0, timeout=HANGS):
        request = pb.StreamProcessOutputsRequest(
            process_id=process_id, stdout_offset=out, stderr_offset=err, follow=follow
        )
        return self.processes.StreamProcessOutputs(request, **self.options(timeout))

    def output(self, process_id, **fields):
        out, err = b"", b""
        for chunk in self.stream(process_id, **fields):
            if chunk.source == pb.OUTPUT_SOURCE_STDOUT:
                out += chunk.data
            else:
                err += chunk.data
        return out, err

    def read(self, path, **options):
        request = pb.ReadFileRequest(path=path)
        for chunk in self.files.ReadFile(request, **{**self.options(), **options}):
            yield chunk.data

    def write(self, messages):
        return self.files.WriteFile(iter(messages), **self.options()).bytes_written


agent = Agent(TARGET)
limited = Agent(LIMITED_TARGET, TOKEN)


@step
def start_and_follow():
    process_id = agent.start("sh", "-c", "echo out; echo err >&2; exit 3")
    assert agent.output(process_id) == (b"out\n", b"err\n")
    process = agent.get(process_id)
    assert (process.status, process.exit_code) == (pb.PROCESS_STATUS_FAILED, 3)
    assert process.HasField("started_at") and process.HasField("finished_at")


@step
def follow_is_live():
    process_id = agent.start("sh", "-c", "echo up; exec sleep 1000")
    stream = agent.stream(process_id)
    assert next(stream).data == b"up\n"
    assert agent.get(process_id).status == pb.PROCESS_STATUS_RUNNING
    assert agent.kill(process_id) == 137
    assert list(stream) == []


@step
def env_and_cwd():
    process_id = agent.start("sh", "-c", 'pwd; echo "$A"', cwd="/", env={"A": "b c"})
    assert agent.output(process_id)[0] == b"/\nb c\n"


@step
def resume_by_offset():
    size = 4 * MIB
    process_id = agent.start("sh", "-c", f"seq 1 10000000 | head -c {size}")
    got, cuts = b"", 0
    while len(got) < size:
        stream = agent.stream(process_id, out=len(got))
        for chunk in stream:
            got += chunk.data
            if cuts < 10:
                break
        stream.cancel()
        cuts += 1
    wanted = "".join(f"{line}\n" for line in range(1, 700000)).encode()[:size]
    assert got == wanted, "the resumed bytes differ"


@step
def wait_with_int64_max():
    process_id = agent.start("sh", "-c", "echo x; exit 4")
    assert agent.output(process_id, out=INT64_MAX, err=INT64_MAX) == (b"", b"")
    assert agent.get(process_id).exit_code == 4


@step
def snapshot():
    process_id = agent.start("sh", "-c", "echo up; exec sleep 1000")
    next(agent.stream(process_id))
    assert agent.output(process_id, follow=False)[0] == b"up\n"
    agent.kill(process_id)


@step
def kill_tree():
    process_id = agent.start("sh", "-c", "setsid sleep 1000 & sleep 1000 & echo $!; wait")
    next(agent.stream(process_id))
    assert agent.kill(process_id) == 137
    process = agent.get(process_id)
    assert (process.status, process.exit_code) == (pb.PROCESS_STATUS_TERMINATED, 137)
    assert agent.kill(process_id) == 137


@step
def upload_64_mib_and_download():
    piece = bytes(range(256)) * 4096
    digest = hashlib.sha256()

    def messages():
        yield pb.WriteFileRequest(path="python/large", mode=0o640)
        for number in range(64):
            chunk = number.to_bytes(8, "big") + piece[8:]
            digest.update(chunk)
            yield pb.WriteFileRequest(chunk=chunk)

    assert agent.write(messages()) == 64 * MIB
    read = hashlib.sha256()
    for data in agent.read("python/large"):
        read.update(data)
    assert read.digest() == digest.digest(), "the download differs from the upload"
    process_id = agent.start("sh", "-c", "sha256sum <python/large; stat -c %a python/large")
    assert agent.output(process_id)[0].decode() == f"{digest.hexdigest()}  -\n640\n"


@step
def invalid_argument():
    with fails(grpc.StatusCode.INVALID_ARGUMENT, "command cannot be empty"):
        agent.start()
    with fails(grpc.StatusCode.INVALID_ARGUMENT, "process_id cannot be empty"):
        agent.get("")
    with fails(grpc.StatusCode.INVALID_ARGUMENT, "offsets cannot be negative"):
        agent.output(agent.start("true"), out=-1)
    with fails(grpc.StatusCode.INVALID_ARGUMENT, "file path cannot be empty"):
        list(agent.read(""))
    with fails(grpc.StatusCode.INVALID_ARGUMENT, "no file data received"):
        agent.write([])
    with fails(grpc.StatusCode.INVALID_ARGUMENT):
        agent.write([pb.WriteFileRequest(path="python/a"), pb.WriteFileRequest(path="python/b")])


@step
def not_found():
    with fails(grpc.StatusCode.NOT_FOUND, 'process "nobody" not found'):
        agent.get("nobody")
    with fails(grpc.StatusCode.NOT_FOUND, 'file "python/absent" not found'):
        list(agent.read("python/absent"))


@step
def permission_denied():
    with fails(grpc.StatusCode.PERMISSION_DENIED, 'access denied: path "/etc/passwd"'):
        list(agent.read("/etc/passwd"))
    with fails(grpc.StatusCode.PERMISSION_DENIED, "is outside sandbox root directory"):
        agent.write([pb.WriteFileRequest(path="../escaped", chunk=b"x")])


@step
def failed_precondition():
    with fails(grpc.StatusCode.FAILED_PRECONDITION):
        list(agent.read("."))


@step
def resource_exhausted():
    ids = [limited.start("sleep", "1000") for _ in range(2)]
    with fails(
        grpc.StatusCode.RESOURCE_EXHAUSTED, "maximum concurrent processes limit (2) reached"
    ):
        limited.start("true")
    for process_id in ids:
        assert limited.kill(process_id) == 137
    with fails(grpc.StatusCode.RESOURCE_EXHAUSTED):
        agent.write([pb.WriteFileRequest(path="python/huge", chunk=bytes(17 * MIB))])


@step
def out_of_range():
    process_id = limited.start("sh", "-c", "head -c 1000000 /dev/zero")
    limited.output(process_id, out=INT64_MAX, err=INT64_MAX)
    stream = limited.stream(process_id)
    with fails(grpc.StatusCode.OUT_OF_RANGE):
        list(stream)
    trailers = dict(stream.trailing_metadata())
    first = int(trailers["ateenv-first-stdout-offset"])
    assert trailers["ateenv-first-stderr-offset"] == "0"
    assert str(first) in stream.details()
    assert len(limited.output(process_id, out=first)[0]) == 1000000 - first


@step
def unauthenticated():
    for token in (None, "wrong", TOKEN + "x", ""):
        other = Agent(LIMITED_TARGET, token)
        with fails(grpc.StatusCode.UNAUTHENTICATED):
            other.get("nobody")
        with fails(grpc.StatusCode.UNAUTHENTICATED):
            list(other.read("x"))
        with fails(grpc.StatusCode.UNAUTHENTICATED):
            other.write([pb.WriteFileRequest(path="python-x", chunk=b"x")])
        other.channel.close()


@step
def unimplemented():
    call = agent.channel.unary_unary("/ateenv.v1alpha.ProcessService/Nope")
    with fails(grpc.StatusCode.UNIMPLEMENTED):
        call(b"", timeout=HANGS)


@step
def unavailable():
    nobody = Agent("127.0.0.1:1")
    with fails(grpc.StatusCode.UNAVAILABLE):
        nobody.get("x")
    nobody.channel.close()


@step
def deadline():
    process_id = agent.start("sleep", "1000")
    with fails(grpc.StatusCode.DEADLINE_EXCEEDED):
        list(agent.stream(process_id, timeout=0.3))
    assert agent.kill(process_id) == 137


@step
def cancel():
    process_id = agent.start("sh", "-c", "while :; do echo x; done")
    for _ in range(20):
        stream = agent.stream(process_id)
        next(stream)
        stream.cancel()
        with fails(grpc.StatusCode.CANCELLED):
            list(stream)
    assert agent.get(process_id).status == pb.PROCESS_STATUS_RUNNING
    assert agent.kill(process_id) == 137


@step
def cancelled_upload_leaves_the_old_file():
    agent.write([pb.WriteFileRequest(path="python/kept", chunk=b"old")])

    def messages():
        yield pb.WriteFileRequest(path="python/kept", chunk=bytes(100000))
        time.sleep(HANGS)

    future = agent.files.WriteFile.future(messages())
    # A read behind it on the same connection.
    assert b"".join(agent.read("python/kept")) == b"old"
    future.cancel()
    assert b"".join(agent.read("python/kept")) == b"old"


@step
def large_metadata():
    metadata = [("x-env-id", "e"), ("x-large", "v" * 6000), ("x-bytes-bin", bytes(range(256)))]
    request = pb.GetProcessRequest(process_id="nobody")
    with fails(grpc.StatusCode.NOT_FOUND):
        agent.processes.GetProcess(request, metadata=metadata, timeout=HANGS)


@step
def version_metadata():
    request = pb.StartProcessRequest(command=["true"])
    _, call = agent.processes.StartProcess.with_call(request, timeout=HANGS)
    assert dict(call.initial_metadata())["ateenv-version"]


@step
def compression():
    request = pb.StartProcessRequest(command=["printf", "%s", "x" * 5000])
    answer = agent.processes.StartProcess(request, compression=grpc.Compression.Gzip, timeout=HANGS)
    assert agent.output(answer.process_id)[0] == b"x" * 5000


@step
def health():
    # Status and service by hand: {1: "service"} -> {1: SERVING}.
    check = agent.channel.unary_unary("/grpc.health.v1.Health/Check")
    for service in (b"", b"ateenv.v1alpha.ProcessService"):
        request = bytes([10, len(service)]) + service if service else b""
        assert check(request, timeout=HANGS) == b"\x08\x01"
    open_to_all = grpc.insecure_channel(LIMITED_TARGET)
    assert open_to_all.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=HANGS) == b"\x08\x01"
    open_to_all.close()


def main():
    failed = 0
    for function in steps:
        try:
            function()
            print(f"ok {function.__name__}")
        except Exception as error:  # pylint: disable=broad-except
            failed += 1
            print(f"not ok {function.__name__}: {type(error).__name__}: {error}".replace("\n", " "))
        sys.stdout.flush()
    print("done")
    sys.stdout.flush()
    # grpcio waits for the generator of a cancelled upload; nothing more is to be said.
    os._exit(1 if failed else 0)


main()
