"""A kernel process that machine code has taken over: what its policy is, and how it speaks to its supervisor."""

from rlm_sandbox.policy.model import LanguagePolicy, WallPolicy

NATIVE = {"language": LanguagePolicy(wall="off"), "walls": WallPolicy()}
"""What of a policy is changed: the walls of the system stand."""

ON_THE_LINE = """
import json, os, socket, struct, sys, time
from rlm_ipc import processes, worker_protocol, worker_requests, framing
line = sys.stdout.link

def say(tag, *frames, fds=()):
    line.send(tag, frames, fds)

def begin(tag, size, head=b""):
    "A message of one frame, of which this much follows."
    line.socket.sendall(framing.HEADER.pack(tag, 0, 1, size) + struct.pack("!Q", size) + head)

def answer_with(*frames):
    "What the supervisor asks of this process is answered so from now on."
    send = line.send
    def lie(tag, told=(), descriptors=(), *, later=False):
        send(tag, frames if tag == worker_requests.Answered.TAG else told, descriptors, later=later)
    line.send = lie
"""

TETHERS = """
import fcntl, os, stat

def is_pipe(fd):
    try:
        return stat.S_ISFIFO(os.fstat(fd).st_mode)
    except OSError:
        return False

tethers = list(filter(is_pipe, range(3, 64)))
len(tethers)
"""
OPEN_TETHERS = """
for fd in tethers:
    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_NONBLOCK)
writing = [os.open(f"/proc/self/fd/{fd}", os.O_WRONLY) for fd in tethers]
"""
"""Finds the pipes by which the system would end this process; takes them off, and opens their other ends."""
