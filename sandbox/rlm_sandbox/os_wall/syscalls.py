"""System call numbers of Linux on x86-64 and aarch64, grouped by what the sandbox does with them.

Each entry reads ``name=x86-64/aarch64``; ``-`` marks a call that aarch64 does not have. Source: the kernel's
own ``asm/unistd_64.h`` and ``asm-generic/unistd.h``, with which a test compares this file where they are
installed. A call that stands nowhere here is unknown to us and answered with ENOSYS.
"""

from __future__ import annotations

import re

ARCHITECTURES = ("x86_64", "aarch64")
"""The machines (as `platform.machine` names them) that the tables cover, in the order of the columns."""

NEWEST = 452
"""The highest number known here. Everything above is newer than this file."""

Numbers = dict[str, dict[str, int]]
"""Call name -> machine -> number."""

_ENTRY = re.compile(r"(\w+)=(\d+)/(\d+|-)")


def _table(text: str) -> Numbers:
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    return {
        name: dict(zip(ARCHITECTURES, [int(number) for number in numbers if number != "-"], strict=False))
        for name, *numbers in _ENTRY.findall("\n".join(lines))
    }


ALLOWED = _table(
    """
    # Reading and writing what is open. copy_file_range and sendfile copy files for shutil, fadvise64 and fallocate are
    # pyarrow's and numpy's, readv and writev how musl reads and writes. pipe and dup in the forms of old and new libc.
    read=0/63 write=1/64 pread64=17/67 pwrite64=18/68 readv=19/65 writev=20/66 lseek=8/62 close=3/57
    close_range=436/436 dup=32/23 dup2=33/- dup3=292/24 pipe=22/- pipe2=293/59 fsync=74/82 fdatasync=75/83
    ftruncate=77/46 fallocate=285/47 fadvise64=221/223 sendfile=40/71 copy_file_range=326/285
    # Names of files; Landlock decides which. Each in all its forms: which one a libc calls differs by version and
    # machine. shutil copies extended attributes.
    mkdir=83/- mkdirat=258/34 rmdir=84/- unlink=87/- unlinkat=263/35 rename=82/- renameat=264/38
    renameat2=316/276 stat=4/- lstat=6/- fstat=5/80 newfstatat=262/79 statx=332/291 statfs=137/43
    fstatfs=138/44 access=21/- faccessat=269/48 faccessat2=439/439 readlink=89/- readlinkat=267/78
    getdents=78/- getdents64=217/61 getcwd=79/17 chdir=80/49 umask=95/166 getxattr=191/8 lgetxattr=192/9
    listxattr=194/11 llistxattr=195/12
    # Waiting: asyncio and the kernel's own loop, and those of compiled libraries, which wake theirs by eventfd2.
    poll=7/- ppoll=271/73 select=23/- pselect6=270/72 epoll_create1=291/20 epoll_ctl=233/21 epoll_wait=232/-
    epoll_pwait=281/22 eventfd2=290/19
    # The inherited line to the supervisor, and the pairs that asyncio makes.
    recvfrom=45/207 recvmsg=47/212 sendmsg=46/211 shutdown=48/210 getsockname=51/204 getpeername=52/205
    getsockopt=55/209
    # Memory: libc's allocator, and those that compiled libraries bring along. msync is a mapped array's flush().
    munmap=11/215 mremap=25/216 mprotect=10/226 madvise=28/233 brk=12/214 msync=26/227
    # Threads, as glibc and musl make, name, wake and end them. Libraries ask how many processors there are, and which
    # one they are on. membarrier and rseq are used by newer versions of libc and of allocators than that of the tests.
    futex=202/98 set_robust_list=273/99 set_tid_address=218/96 rseq=334/293 membarrier=324/283
    sched_yield=24/124 sched_getaffinity=204/123 getcpu=309/168 gettid=186/178 exit=60/93 exit_group=231/94
    arch_prctl=158/-
    # Time, where libc has no way past the kernel. Timers that end in a signal are setitimer and alarm.
    clock_gettime=228/113 clock_getres=229/114 clock_nanosleep=230/115 nanosleep=35/101 gettimeofday=96/169
    time=201/- times=100/153 getitimer=36/102 setitimer=38/103 alarm=37/-
    # Signals to itself. restart_syscall goes on with a wait after the process was stopped; Rust and faulthandler give
    # their handlers a stack of its own.
    rt_sigaction=13/134 rt_sigprocmask=14/135 rt_sigreturn=15/139 sigaltstack=131/132 restart_syscall=219/128
    # What the process is, and may use. wait4 reaps copies that the supervisor had it make; a forked session leads a
    # process group of its own (setsid).
    getpid=39/172 getppid=110/173 getuid=102/174 geteuid=107/175 getgid=104/176 getegid=108/177
    uname=63/160 sysinfo=99/179 getrusage=98/165 getrlimit=97/163 getrandom=318/278 wait4=61/260
    setsid=112/157
    # Confining itself further: what a session forked under a stricter policy does.
    landlock_create_ruleset=444/444 landlock_add_rule=445/445 landlock_restrict_self=446/446
    """
)
"""Harmless for a process that may not open anything of value: allowed whatever the arguments.

What is here was recorded from kernels and jobs at work (`make syscalls`), or is what another version of libc, another
machine or a package that the recording lacks calls in its place. Anything else is answered with ENOSYS.
"""

INSPECTED = _table(
    """
    clone=56/220 fork=57/- open=2/- openat=257/56 mmap=9/222 ioctl=16/29 fcntl=72/25 flock=73/32
    prctl=157/167 prlimit64=302/261 kill=62/129 tgkill=234/131 socket=41/198 socketpair=53/199 sendto=44/206
    setsockopt=54/208 sched_setaffinity=203/122 seccomp=317/277
    """
)
"""Allowed or not by their arguments; `rlm_sandbox.os_wall.seccomp` has a rule for each."""

PROBED = _table(
    """
    mbind=237/235 set_mempolicy=238/237
    """
)
"""Refused to every session, and not counted: libraries ask where memory may lie, and do without."""

METADATA = _table(
    """
    chmod=90/- fchmod=91/52 fchmodat=268/53 fchmodat2=452/452 chown=92/- fchown=93/55 lchown=94/-
    fchownat=260/54 setxattr=188/5 lsetxattr=189/6 fsetxattr=190/7 removexattr=197/14 lremovexattr=198/15
    fremovexattr=199/16 utime=132/- utimes=235/- futimesat=261/- utimensat=280/88
    """
)
"""Changes of modes, owners, times and attributes, which Landlock does not govern."""

LINKS = _table(
    """
    link=86/- linkat=265/37 symlink=88/- symlinkat=266/36 mknod=133/- mknodat=259/33
    """
)
"""Making links and special files, with which a session could point its supervisor elsewhere."""

NETWORK = _table(
    """
    connect=42/203 bind=49/200 listen=50/201 accept=43/202 accept4=288/242 sendmmsg=307/269 recvmmsg=299/243
    """
)
"""Useful only with sockets of one's own."""

CLOSED = _table(
    """
    execve=59/221 execveat=322/281 vfork=58/- tkill=200/130 rt_sigqueueinfo=129/138
    rt_tgsigqueueinfo=297/240 pidfd_open=434/434 pidfd_getfd=438/438 pidfd_send_signal=424/424
    process_madvise=440/440 process_mrelease=448/448 truncate=76/45 memfd_create=319/279 inotify_init=253/-
    inotify_init1=294/26 inotify_add_watch=254/27 splice=275/76 tee=276/77 vmsplice=278/75 setpgid=109/154
    setpriority=141/140 sched_setscheduler=144/119 sched_setparam=142/118 sched_setattr=314/274
    ioprio_set=251/30 setuid=105/146 setgid=106/144 setreuid=113/145 setregid=114/143 setresuid=117/147
    setresgid=119/149 setgroups=116/159 setfsuid=122/151 setfsgid=123/152 capset=126/91 sync=162/81
    syncfs=306/267 shmget=29/194 shmat=30/196 shmctl=31/195 semget=64/190 semop=65/193 semctl=66/191
    msgget=68/186 msgsnd=69/189 msgrcv=70/188 msgctl=71/187 mq_open=240/180
    """
)
"""Refused to sessions that may not run programs; ordinary for those that may."""

DENIED = _table(
    """
    ptrace=101/117 process_vm_readv=310/270 process_vm_writev=311/271 kcmp=312/272 get_robust_list=274/100
    mount=165/40 umount2=166/39 pivot_root=155/41 chroot=161/51 unshare=272/97 setns=308/268
    open_tree=428/428 move_mount=429/429 fsopen=430/430 fsconfig=431/431 fsmount=432/432 fspick=433/433
    mount_setattr=442/442 bpf=321/280 perf_event_open=298/241 userfaultfd=323/282 io_uring_setup=425/425
    io_uring_enter=426/426 io_uring_register=427/427 add_key=248/217 request_key=249/218 keyctl=250/219
    init_module=175/105 finit_module=313/273 delete_module=176/106 kexec_load=246/104
    kexec_file_load=320/294 reboot=169/142 swapon=167/224 swapoff=168/225 acct=163/89 quotactl=179/60
    quotactl_fd=443/443 iopl=172/- ioperm=173/- modify_ldt=154/- syslog=103/116 settimeofday=164/170
    clock_settime=227/112 clock_adjtime=305/266 adjtimex=159/171 sethostname=170/161 setdomainname=171/162
    open_by_handle_at=304/265 name_to_handle_at=303/264 personality=135/92 vhangup=153/58
    fanotify_init=300/262 fanotify_mark=301/263 migrate_pages=256/238 move_pages=279/239
    memfd_secret=447/447 remap_file_pages=216/234 lookup_dcookie=212/18
    """
)
"""Refused to every session: other processes, namespaces, devices, the machine's state, kernel attack
surface."""

ABSENT = _table(
    """
    clone3=435/435 openat2=437/437
    """
)
"""Reported as missing, because their arguments lie in memory where a filter cannot see them; libc falls
back."""

ALL: Numbers = ALLOWED | INSPECTED | PROBED | METADATA | LINKS | NETWORK | CLOSED | DENIED | ABSENT
"""Every call known here."""


def numbers(group: Numbers, machine: str) -> dict[str, int]:
    """The calls of ``group`` that ``machine`` has, with their numbers there."""
    return {name: by_machine[machine] for name, by_machine in group.items() if machine in by_machine}
