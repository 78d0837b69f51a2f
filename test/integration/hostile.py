"""Clients that mean harm, or know no better: what a port scanner, a fuzzer, a lost browser or an
attacker without the job's keys can do to a listening socket.

An attack is a function of a Target that returns within about a second, or, if it holds connections,
a context manager that holds them. None of them knows a secret of the job.
"""

import contextlib
import ctypes
import multiprocessing
import os
import random
import resource
import select
import socket
import ssl
import struct
import threading
import time

CLONE_NEWNET = 0x40000000
CONNECT_S = 5
SILENT_CLIENTS = 500
LINK_HELLO_BYTES = 38
LINK_MAGIC = struct.pack("<I", 0x4D555354)

# HTTP/2 (RFC 9113): frame types and flags.
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
CONTINUATION = 9
END_STREAM, ACK, END_HEADERS = 1, 1, 4


# ---------------------------------------------------------------- what listens


class Target:
    """One listening TCP socket of a process."""

    def __init__(self, pid, host, port, tls=False):
        self.pid, self.host, self.port, self.tls = pid, host, port, tls

    def connect(self, timeout=CONNECT_S):
        """A TCP connection, whatever is spoken on it."""
        sock = socket.create_connection((self.host, self.port), timeout=timeout)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def open(self, timeout=CONNECT_S):
        """A connection on which HTTP/2 could be spoken: inside TLS if the target speaks it. The
        certificate is not checked: an attacker does not care."""
        sock = self.connect(timeout)
        if not self.tls:
            return sock
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        return context.wrap_socket(sock)

    def __repr__(self):
        return f"{self.host}:{self.port}{' (TLS)' if self.tls else ''} of {self.pid}"


def _inodes(pid):
    found = set()
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                link = os.readlink(f"/proc/{pid}/fd/{name}")
                if link.startswith("socket:["):
                    found.add(int(link[8:-1]))
    return found


def _address(text):
    """/proc/net/tcp writes addresses as 32-bit words of the machine's order."""
    address, port = text.split(":")
    words = [struct.pack("=I", int(address[i:i + 8], 16)) for i in range(0, len(address), 8)]
    family = socket.AF_INET if len(words) == 1 else socket.AF_INET6
    host = socket.inet_ntop(family, b"".join(words))
    return host.removeprefix("::ffff:"), int(port, 16)


def listeners(pids):
    """All listening TCP sockets of these processes, whatever network namespace they are in."""
    found = []
    for pid in pids:
        inodes = _inodes(pid)
        for table in ("tcp", "tcp6"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/net/{table}",
                                                    encoding="ascii") as file:
                for line in file.readlines()[1:]:
                    fields = line.split()
                    if fields[3] == "0A" and int(fields[9]) in inodes:
                        inodes.discard(int(fields[9]))  # A forked child has it too.
                        found.append(Target(pid, *_address(fields[1])))
    return found


@contextlib.contextmanager
def inside(namespace):
    """In another network namespace: this thread, and the threads that it starts."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/thread-self/ns/net", "rb") as home, open(namespace, "rb") as away:
        if libc.setns(away.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
        try:
            yield
        finally:
            libc.setns(home.fileno(), CLONE_NEWNET)


def unix_paths(pids):
    """Paths of the Unix sockets that these processes are bound to."""
    inodes = set().union(*(_inodes(pid) for pid in pids))
    found = set()
    with open("/proc/net/unix", encoding="utf-8", errors="replace") as file:
        for line in file.readlines()[1:]:
            fields = line.split()
            if len(fields) > 7 and int(fields[6]) in inodes and fields[7].startswith("/"):
                found.add(fields[7])
    return sorted(found)


def descriptor_count(pid):
    """Without those of shared segments: an agent makes its spare some time after a world formed."""
    count = 0
    with contextlib.suppress(OSError):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                count += "muster-segment" not in os.readlink(f"/proc/{pid}/fd/{fd}")
    return count


def resident_mb(pid):
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status", encoding="utf-8") as file:
        for line in file:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) // 1024
    return 0


# ---------------------------------------------------------------- attacks


def _send(sock, data):
    """What the other side still takes; it may close at any time."""
    with contextlib.suppress(OSError):
        sock.sendall(data)
        return True
    return False


def _reset(sock):
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


@contextlib.contextmanager
def silent(target, count=SILENT_CLIENTS):
    """Connect and say nothing. A listener may refuse some: its queue is finite."""
    socks = []
    try:
        for _ in range(count):
            with contextlib.suppress(OSError):
                socks.append(target.connect(timeout=1))
        yield socks
    finally:
        for sock in socks:
            sock.close()


@contextlib.contextmanager
def silent_inside_tls(target, count=20):
    socks = []
    try:
        for _ in range(count):
            with contextlib.suppress(OSError):
                socks.append(target.open())
        yield socks
    finally:
        for sock in socks:
            sock.close()


def random_bytes(target, seed=1):
    chance = random.Random(seed)
    for _ in range(20):
        with contextlib.suppress(OSError), target.connect() as sock:
            _send(sock, chance.randbytes(chance.randrange(1, 5000)))


def plain_http(target):
    for request in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\r\n\r\n", b"SSH-2.0-scanner\r\n",
                    b"\x16\x03\x01", b"\x00" * 4096, b"\xff" * 4096):
        with contextlib.suppress(OSError), target.connect() as sock:
            _send(sock, request)


@contextlib.contextmanager
def held(target, data, count=20, inside=False):
    """Connections that say this much and no more."""
    socks = []
    try:
        for _ in range(count):
            with contextlib.suppress(OSError):
                sock = target.open() if inside else target.connect()
                socks.append(sock)
                _send(sock, data)
        yield socks
    finally:
        for sock in socks:
            sock.close()


def half_tls_hello(target):
    hello = bytes.fromhex("16030100c8010000c40303") + b"r" * 32
    return held(target, hello)


def half_preface(target):
    return held(target, PREFACE[:10])


def idle_http2(target):
    return held(target, PREFACE + frame(SETTINGS), inside=True)


def half_link_hello(target):
    return held(target, link_hello(1, 1, 0)[:20])


def whole_link_hello(target):
    """Of generations that may be, or may come: they are parked or answered, never believed."""
    hellos = b"".join([link_hello(2 ** 40, 1, 0)])
    return held(target, hellos)


def resets(target, count=200):
    for _ in range(count):
        with contextlib.suppress(OSError):
            _reset(target.connect(timeout=1))


def slow_loris(target, data=PREFACE, seconds=1.0):
    """A byte at a time, on several connections."""
    socks = []
    with contextlib.suppress(OSError):
        socks = [target.connect() for _ in range(10)]
    for position in range(len(data)):
        for sock in socks:
            _send(sock, data[position:position + 1])
        time.sleep(seconds / len(data))
    for sock in socks:
        sock.close()


def guessed_link_proofs(target, generations=range(1, 4)):
    """Says hello as a member and guesses the proof."""
    for generation in generations:
        for sender in range(1, 4):
            with contextlib.suppress(OSError), target.connect() as sock:
                _send(sock, link_hello(generation, sender, 0))
                sock.settimeout(0.02)
                with contextlib.suppress(OSError):
                    sock.recv(48)
                _send(sock, os.urandom(32))


def link_hello(generation, sender, receiver, kind=1):
    return LINK_MAGIC + struct.pack("<BBQII", 1, kind, generation, sender, receiver) + os.urandom(16)


# ---------------------------------------------------------------- HTTP/2


def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _integer(value, bits):
    """HPACK's integers (RFC 7541, 5.1), behind a prefix of zero bits."""
    most = (1 << bits) - 1
    if value < most:
        return bytes([value])
    out = bytes([most])
    value -= most
    while value >= 128:
        out += bytes([value % 128 + 128])
        value //= 128
    return out + bytes([value])


def headers(fields):
    """Literals without indexing, without Huffman's code."""
    block = b""
    for name, value in fields:
        name, value = name.encode(), value.encode()
        block += b"\0" + _integer(len(name), 7) + name + _integer(len(value), 7) + value
    return block


def call_headers(method="/muster.v1.Agents/Attach", extra=()):
    return headers([(":method", "POST"), (":scheme", "http"), (":path", method),
                    (":authority", "driver.muster"), ("te", "trailers"),
                    ("content-type", "application/grpc"), *extra])


def begin(target):
    sock = target.open()
    _send(sock, PREFACE + frame(SETTINGS))
    return sock


def read_for(sock, seconds):
    """What comes within the time, or until the other side closes."""
    data = b""
    deadline = time.monotonic() + seconds
    with contextlib.suppress(OSError):
        while time.monotonic() < deadline:
            sock.settimeout(max(0.01, deadline - time.monotonic()))
            more = sock.recv(65536)
            if not more:
                break
            data += more
    return data


def call(target, method="/muster.v1.Agents/Attach", secret=None, body=b"", seconds=2):
    """One gRPC call with these credentials; the bytes of the answer."""
    extra = [("muster-secret", secret)] if secret is not None else []
    with begin(target) as sock:
        _send(sock, frame(HEADERS, END_HEADERS, 1, call_headers(method, extra))
              + frame(DATA, 0, 1, b"\0" + struct.pack(">I", len(body)) + body))
        data = b""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and b"grpc-status" not in data:
            more = read_for(sock, 0.2)
            data += more
        return data


def wrong_secrets(target):
    """Every one of these is refused; see test_hostile for the status."""
    for secret in (None, "", "0" * 64, "x" * 4000):
        for method in ("/muster.v1.Agents/Attach", "/muster.v1.Agents/ForwardOutput",
                       "/muster.v1.Workers/Join", "/nothing"):
            with contextlib.suppress(OSError):
                call(target, method, secret, seconds=0.1)


def stream_flood(target, streams=2000):
    with contextlib.suppress(OSError), begin(target) as sock:
        block = call_headers()
        for number in range(streams):
            if not _send(sock, frame(HEADERS, END_HEADERS, 2 * number + 1, block)):
                return


def rapid_resets(target, streams=5000):
    """CVE-2023-44487."""
    with contextlib.suppress(OSError), begin(target) as sock:
        block = call_headers()
        for number in range(streams):
            stream = 2 * number + 1
            if not _send(sock, frame(HEADERS, END_HEADERS, stream, block)
                         + frame(RST_STREAM, 0, stream, struct.pack(">I", 8))):
                return


def settings_flood(target, count=5000):
    with contextlib.suppress(OSError), begin(target) as sock:
        for _ in range(count):
            if not _send(sock, frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 65535))):
                return


def ping_flood(target, count=5000):
    with contextlib.suppress(OSError), begin(target) as sock:
        for _ in range(count):
            if not _send(sock, frame(PING, 0, 0, b"12345678")):
                return


def continuation_flood(target, count=500):
    """Headers that never end (CVE-2024-24549 and its like)."""
    with contextlib.suppress(OSError), begin(target) as sock:
        _send(sock, frame(HEADERS, 0, 1, call_headers()))
        block = headers([("x" * 100, "y" * 10000)])
        for _ in range(count):
            if not _send(sock, frame(CONTINUATION, 0, 1, block)):
                return


def oversized(target):
    """Messages and headers beyond every limit, announced or sent."""
    with contextlib.suppress(OSError), begin(target) as sock:
        _send(sock, frame(HEADERS, END_HEADERS, 1, call_headers())
              + frame(DATA, 0, 1, b"\0" + struct.pack(">I", 1 << 30)))
        for _ in range(100):
            if not _send(sock, frame(DATA, 0, 1, b"\0" * 16000)):
                break
    with contextlib.suppress(OSError), begin(target) as sock:
        _send(sock, frame(DATA, 0, 1, b"")[:3] + b"\0" * 6 + b"\xff" * 100)
        _send(sock, b"\xff\xff\xff" + b"\0" * 70000)
    with contextlib.suppress(OSError), begin(target) as sock:
        _send(sock, frame(HEADERS, END_HEADERS, 1, call_headers(extra=[("muster-secret", "x" * 9000)])))
        read_for(sock, 0.1)


# Those that are over when they return, and those that hold connections while others go on.
BLOWS = (random_bytes, plain_http, resets, slow_loris, guessed_link_proofs, wrong_secrets,
         stream_flood, rapid_resets, settings_flood, ping_flood, continuation_flood, oversized)
SIEGES = (silent, silent_inside_tls, half_tls_hello, half_preface, idle_http2, half_link_hello,
          whole_link_hello)


def strike(attack, targets):
    """A blow at all targets at once."""
    threads = [threading.Thread(target=attack, args=(target,), daemon=True) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return not any(thread.is_alive() for thread in threads)


@contextlib.contextmanager
def besiege(attack, targets):
    with contextlib.ExitStack() as stack:
        yield [sock for target in targets for sock in stack.enter_context(attack(target))]


class Harassment:
    """Blows at whatever a job listens at, new ports included, until it is stopped."""

    BLOWS = (random_bytes, plain_http, lambda t: guessed_link_proofs(t, (1,)),
             lambda t: resets(t, 20))

    def __init__(self, pids):
        self._pids = pids  # Gives the pids of the moment.
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.struck = set()

    def _run(self):
        while not self._stop.is_set():
            for target in listeners(self._pids()):
                for blow in self.BLOWS:
                    if self._stop.is_set():
                        return
                    with contextlib.suppress(OSError):
                        blow(target)
                self.struck.add((target.host, target.port))
            self._stop.wait(0.02)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join(60)


class Crowd:
    """So many silent connections to each target at all times: who is shown out comes again. In a
    process of its own, for the sake of its limit of open files."""

    def __init__(self, targets, count):
        self._targets, self._count = targets, count
        self._process = None

    def _fill(self):
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        poll = select.epoll()
        held = {}
        for target in self._targets * self._count:
            self._come(target, poll, held)
        while True:
            for fd, _ in poll.poll(1):
                target, sock = held.pop(fd)
                sock.close()
                self._come(target, poll, held)

    @staticmethod
    def _come(target, poll, held):
        sock = socket.socket(socket.AF_INET6 if ":" in target.host else socket.AF_INET)
        sock.setblocking(False)
        with contextlib.suppress(OSError):
            sock.connect((target.host, target.port))
        held[sock.fileno()] = (target, sock)
        poll.register(sock.fileno(), select.EPOLLIN | select.EPOLLRDHUP)

    def __enter__(self):
        self._process = multiprocessing.get_context("fork").Process(target=self._fill, daemon=True)
        self._process.start()
        time.sleep(1)  # Until they are there.
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.join(10)


# ---------------------------------------------------------------- recordings


class Recorder:
    """Listens to all TCP on the loopback interface and keeps what the client of each connection
    said, for links between workers. Needs CAP_NET_RAW."""

    def __init__(self):
        self._sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0003))
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
        self._sock.bind(("lo", 0))
        self._said = {}  # (client port, server port) -> bytes of the first kilobyte.
        self._mutex = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while not self._stop.is_set():
            ready, _, _ = select.select([self._sock], [], [], 0.1)
            if ready:
                packet, address = self._sock.recvfrom(65535)
                if address[2] == socket.PACKET_OUTGOING:  # Each is seen twice.
                    self._take(packet[14:])

    def _take(self, packet):
        if len(packet) < 40 or packet[0] >> 4 != 4 or packet[9] != socket.IPPROTO_TCP:
            return
        ip_size = (packet[0] & 15) * 4
        total = struct.unpack(">H", packet[2:4])[0]
        source, destination = struct.unpack(">HH", packet[ip_size:ip_size + 4])
        tcp_size = (packet[ip_size + 12] >> 4) * 4
        payload = packet[ip_size + tcp_size:total]
        if not payload:
            return
        key = (source, destination)
        with self._mutex:
            known = self._said.get(key)
            if known is None and not payload.startswith(LINK_MAGIC):
                return
            if known is None or len(known) < 1024:
                self._said[key] = (known or b"") + payload

    def handshakes(self):
        """(server port, hello, what followed it) of each link that was opened."""
        with self._mutex:
            return [(key[1], said[:LINK_HELLO_BYTES], said[LINK_HELLO_BYTES:])
                    for key, said in self._said.items() if len(said) >= LINK_HELLO_BYTES + 32]

    def close(self):
        self._stop.set()
        self._thread.join(10)
        self._sock.close()


def replay(port, hello, rest, host="127.0.0.1"):
    """Plays a recorded client again. True: the other side closed, as it must."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), CONNECT_S) as sock:
        sock.settimeout(5)
        sock.sendall(hello)
        with contextlib.suppress(socket.timeout):
            sock.recv(48)
        sock.sendall(rest)
        while sock.recv(65536):
            pass
        return True
    return True
