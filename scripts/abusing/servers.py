"""Servers, a client at work at each, and newcomers."""

import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time

from abusing.peers import TENANT

DESIGNS = ["farm", "pilaf", "two-sided", "prism", "strom"]
NAMES = [f"kv-{design}" for design in DESIGNS] + ["block", "txn", "cache", "nicd"]
PORTS = ["shm", "udp"]
# Clients that a server takes at a time.
PLACES = 16
# Time in which a server starts, or a client connects to one that is left alone.
PATIENCE = 60


class Failed(Exception):
    """Something that is to be measured does not run."""


def free_port():
    """None of those that the system gives to whoever connects."""
    for port in range(10000 + os.getpid() % 10000, 30000):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
    raise Failed("no port is free")


class Process:
    """A process of the binary. What it says on standard error is kept, the last of it."""

    def __init__(self, words, reads_output=False):
        self.words, self.said = words, []
        output = subprocess.PIPE if reads_output else subprocess.DEVNULL
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.PIPE, text=True
        )
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.process.stderr:
            self.said = self.said[-50:] + [line.rstrip()]

    def wait_for(self, pattern):
        """What it says there."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            for line in list(self.said):
                if match := re.search(pattern, line):
                    return match.group(1)
            if self.process.poll() is not None:
                time.sleep(0.1)
                raise Failed(f"{' '.join(self.words)} has ended: {' '.join(self.said)}")
            time.sleep(0.01)
        raise Failed(f"{' '.join(self.words)} does not say that it serves: {' '.join(self.said)}")

    def facts(self):
        """Resident KiB, descriptors, threads."""
        pid = self.process.pid
        try:
            with open(f"/proc/{pid}/status", encoding="ascii") as status:
                text = status.read()
            number = lambda name: int(re.search(rf"^{name}:\s+(\d+)", text, re.M).group(1))
            return number("VmRSS"), len(os.listdir(f"/proc/{pid}/fd")), number("Threads")
        except (OSError, AttributeError) as error:
            raise Failed(f"{' '.join(self.words)} has ended: {' '.join(self.said)}") from error

    def end(self):
        self.process.terminate()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Server:
    """One of NAMES over a port, with what the newcomers ask for in it."""

    def __init__(self, binary, name, port, places=PLACES):
        self.binary, self.name, self.port = binary, name, port
        self.folder = tempfile.mkdtemp(prefix="remora-abuse-")
        self.processes, self.lender = [], None
        try:
            self.address = self.start(["--clients", str(places)])
            self.fill()
            self.request = self.recorded()
        except BaseException:
            self.end()
            raise

    def words(self, *words):
        return [self.binary, *words]

    def run(self, words, serves):
        process = Process(words)
        self.processes.append(process)
        host, port = process.wait_for(serves).rsplit(":", 1)
        return host, int(port)

    def start(self, more):
        """Starts it; where clients connect."""
        serves = r"serving .* at ([\d.]+:\d+); end"
        more = more + ["--port", self.port]
        listen = ["--listen", "127.0.0.1:0"]
        if self.name == "block":
            at = f"127.0.0.1:{free_port()}"
            words = ["serve", "block", "--replica", "0", "--new", "--servers", at, "--blocks", "64", "--block-len", "512"]
            return self.run(self.words(*words, *more), serves)
        if self.name == "txn":
            return self.run(self.words("serve", "txn", *listen, *more), serves)
        if self.name == "cache":
            words = self.words("serve", "cache", *listen, "--chains", "127.0.0.1:0", *more)
            self.tcp = self.run(words, r"text protocol at ([\d.]+:\d+);")
            host, port = self.processes[0].wait_for(r"Remora clients connect at ([\d.]+:\d+)").rsplit(":", 1)
            return host, int(port)
        table = ["--capacity", "1000"]
        if self.name == "nicd":
            path = os.path.join(self.folder, "nic.sock")
            # Another user must reach the socket, and what it can take is small enough for a short test.
            os.chmod(self.folder, 0o755)
            self.lender = path
            few = ["--tenants", "16", "--attachments", "32", "--memory", "256m", "--pairs", "256"]
            daemon = Process(self.words("nicd", "--socket", path, "--port", self.port, "--allow-uid", str(TENANT), *few))
            self.processes.append(daemon)
            daemon.wait_for(r"lending a NIC over .* at (.*); end")
            lent = ["--nicd", path, "--keep", "store", "--clients", more[1]]
            return self.run(self.words("serve", "kv", *listen, *table, *lent), serves)
        design = ["--design", self.name.removeprefix("kv-")]
        return self.run(self.words("serve", "kv", *listen, *table, *design, *more), serves)

    def client(self, verb, *words):
        """The words of a client."""
        at = f"{self.address[0]}:{self.address[1]}"
        port = ["--port", self.port]
        if self.name == "block":
            return self.words("block", verb, *words, "--servers", at, *port)
        if self.name == "txn":
            return self.words("txn", verb, *words, "--shards", at, *port)
        if self.name == "cache":
            return self.words("cache", verb, *words, "--connect", at, *port)
        design = "farm" if self.name == "nicd" else self.name.removeprefix("kv-")
        return self.words("kv", verb, *words, "--connect", at, "--design", design, *port)

    def fill(self):
        if self.name == "cache":
            with socket.create_connection(self.tcp, timeout=PATIENCE) as talk:
                talk.sendall(b"set colour 0 0 4\r\nblue\r\n")
                talk.recv(100)
            return
        words = {"block": ["write", "63", "blue"]}.get(self.name, ["put", "colour", "blue"])
        done = subprocess.run(self.client(*words), capture_output=True, text=True, timeout=PATIENCE, check=False)
        if done.returncode != 0:
            raise Failed(f"{' '.join(self.client(*words))}: {done.stderr.strip()}")

    def newcomer(self):
        """The words of a client that connects, reads one thing, and ends."""
        return self.client("read", "63") if self.name == "block" else self.client("get", "colour")

    def recorded(self):
        """A newcomer's request, as it comes over TCP."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.settimeout(PATIENCE)
            own, self.address = self.address, listener.getsockname()
            words, self.address = self.newcomer(), own
            quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            client = subprocess.Popen(words, **quiet)
            try:
                stream, _ = listener.accept()
                with stream, stream.makefile("rb") as reader:
                    stream.settimeout(PATIENCE)
                    head = reader.read(16)
                    return head + reader.read(int.from_bytes(head[12:16], "little"))
            finally:
                client.kill()
                client.wait()

    def end_tenants(self):
        """Ends what the abusing user has kept, as the owner of a daemon would."""
        at = ["--socket", self.lender]
        listed = subprocess.run(self.words("nicd", "list", *at, "--json"), capture_output=True, text=True, timeout=PATIENCE, check=True)
        names = [row["tenant"] for row in map(json.loads, listed.stdout.splitlines()) if row["uid"] == TENANT and row["tenant"]]
        if not names:
            raise Failed("the daemon lists no kept tenant of the abusing user")
        for name in names:
            subprocess.run(self.words("nicd", "end", name, "--uid", str(TENANT), *at), timeout=PATIENCE, check=True)

    def facts(self):
        """Resident KiB, descriptors and threads of its processes together."""
        return tuple(map(sum, zip(*(process.facts() for process in self.processes))))

    def end(self):
        for process in reversed(self.processes):
            process.end()
        shutil.rmtree(self.folder, ignore_errors=True)


class Worker:
    """A client at work: one operation after the other, and a line for each period."""

    def __init__(self, server, every, rate=None):
        more = ["--rate", str(rate)] if rate else []
        values = ["--value-len", "64"] if server.name.startswith("kv") or server.name == "nicd" else []
        words = ["--child", "--every", str(every), "--seconds", "1000000", "--window", "1", *values, *more]
        self.periods = []
        self.client = Process(server.client("exercise", *words), reads_output=True)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.client.process.stdout:
            self.periods.append(json.loads(line))

    def has_worked(self):
        return any(period["operations"] for period in self.periods)

    def wait(self, patience=PATIENCE):
        """Until it has done something."""
        until = time.monotonic() + patience
        while not self.has_worked():
            if self.client.process.poll() is not None or time.monotonic() > until:
                raise Failed(f"{' '.join(self.client.words)} does nothing: {' '.join(self.client.said)}")
            time.sleep(0.005)

    def between(self, start, end):
        """The periods that lie within."""
        every = min((later["clock"] - earlier["clock"] for earlier, later in zip(self.periods, self.periods[1:])), default=0)
        return [period for period in list(self.periods) if start + every <= period["clock"] <= end + every / 2]

    def end(self):
        self.client.process.kill()
        self.client.process.wait()


class Newcomers:
    """One after the other, each a process of its own, some a second."""

    PAUSE = 0.2
    LONGEST = 15

    def __init__(self, server):
        self.words, self.times, self.why = server.newcomer(), [], ""
        self.over, self.held = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self.come, daemon=True)
        self.thread.start()

    def come(self):
        while not self.over.is_set():
            if not self.held.is_set():
                self.one()
            self.over.wait(self.PAUSE)

    def one(self):
        started = time.monotonic()
        served = False
        try:
            done = subprocess.run(self.words, capture_output=True, text=True, timeout=self.LONGEST, check=False)
            served = done.returncode == 0
            if not served:
                self.why = done.stderr.strip()
        except subprocess.TimeoutExpired:
            self.why = f"no answer in {self.LONGEST} s"
        # One that is turned away has not been served, however quick that was.
        took = time.monotonic() - started
        self.times.append((started, took if served else max(took, float("inf"))))

    def wait_for_one(self):
        """Until the first is served, or is not."""
        until = time.monotonic() + self.LONGEST
        while not self.times and time.monotonic() < until:
            time.sleep(0.005)

    def between(self, start, end):
        """Seconds that those took that came then."""
        return [took for started, took in list(self.times) if start <= started <= end]

    def end(self):
        self.over.set()
        self.thread.join()
