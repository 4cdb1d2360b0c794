/* How a kernel process forks: a sibling, whose parent is *our parent*, and a sleeping copy.

It is clone(2) with CLONE_PARENT, between CPython's own hooks for a fork. The process that sees our end sees the end of
the sibling too, and the sibling does not die with us. glibc's own work for a fork is skipped, so this is only for a
process with a single thread: then nobody holds the locks of malloc.

It is in C because whatever runs between the fork and the end of the wait writes to pages, and the first write to a page
after a fork copies it, in both processes. Calls from Python cost 4 KiB about seventy times; these cost some pages of
the stack. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PID_DIGITS 10
#define MOST_TOLD 256

/* Block all signals, and remember which were blocked. seccomp stops the clone until the supervisor has answered: a
signal that arrives meanwhile would end the call with EINTR, or restart it after the permission was used up. */
static void hold_signals(sigset_t *all, sigset_t *held) {
    sigfillset(all);
    pthread_sigmask(SIG_SETMASK, all, held);
}

/* The system call itself: glibc's fork() cannot pass CLONE_PARENT. Without CLONE_VM, stack 0 means a copy of ours. */
static long clone_sibling(void) {
#if defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__))
    return syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);
#else /* elsewhere the arguments have another order */
    errno = ENOSYS;
    return -1;
#endif
}

/* Wait until something can be read or the other end is closed, with the signals in `held` held back. */
static void wait_for(int descriptor, const sigset_t *held) {
    struct pollfd wanted = {.fd = descriptor, .events = POLLIN};
    ppoll(&wanted, 1, NULL, held);
}

static PyObject *pid_or_error(long pid, int error) {
    if (pid < 0) {
        errno = error;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    return PyLong_FromLong(pid);
}

PyDoc_STRVAR(fork_sibling_doc, "fork_sibling()\n--\n\n"
                               "Fork a child whose parent is our parent. Return 0 in the child, its pid here.\n\n"
                               "Only for a process with one thread. Raises OSError.");

static PyObject *fork_sibling(PyObject *module, PyObject *unused) {
    sigset_t all, held;
    PyOS_BeforeFork(); /* takes the import lock, so that the child does not inherit it half-way */
    hold_signals(&all, &held);
    long pid = clone_sibling();
    int error = errno;
    if (pid == 0) {
        PyOS_AfterFork_Child();
    } else {
        PyOS_AfterFork_Parent();
    }
    pthread_sigmask(SIG_SETMASK, &held, NULL);
    return pid_or_error(pid, error);
}

/* Report the pid on `line`, and wait there for what comes next. If the reader is gone the copy ends, because nobody
knows its lifeline. */
static void tell_and_wait(int line, char *told, size_t length, long pid, const sigset_t *held) {
    char digits[PID_DIGITS + 1];
    snprintf(digits, sizeof digits, "%*ld", PID_DIGITS, pid);
    memcpy(told + length - PID_DIGITS - 1, digits, PID_DIGITS);
    if (write(line, told, length) == (ssize_t)length) {
        wait_for(line, held);
    }
}

PyDoc_STRVAR(fork_asleep_doc,
             "fork_asleep(lifeline, first=None, line=-1, told=b'', /)\n--\n\n"
             "Fork a sibling that only waits until ``lifeline`` can be read, or its other end is closed.\n\n"
             "Before it waits, it calls ``first``, and ends if that fails. The sibling then returns 0; the caller\n"
             "gets its pid. With ``line``, the caller closes its end of the lifeline, writes ``told`` to the line,\n"
             "with the pid in the ten bytes before the last, and waits for input too: until then both processes\n"
             "share all of their memory. No signal interrupts the fork, and none arrives in the sleeping process.\n"
             "Only for a process with one thread. Raises OSError.");

static PyObject *fork_asleep(PyObject *module, PyObject *args) {
    int lifeline, line = -1;
    PyObject *first = Py_None;
    const char *given = "";
    Py_ssize_t length = 0;
    char told[MOST_TOLD];
    sigset_t all, held;
    if (!PyArg_ParseTuple(args, "i|Oiy#:fork_asleep", &lifeline, &first, &line, &given, &length)) {
        return NULL;
    }
    if (line >= 0 && (length <= PID_DIGITS || length > MOST_TOLD)) {
        PyErr_SetString(PyExc_ValueError, "told has no room for a pid, or is too long");
        return NULL;
    }
    memcpy(told, given, line >= 0 ? (size_t)length : 0);
    PyOS_BeforeFork();
    hold_signals(&all, &held);
    long pid = clone_sibling();
    int error = errno;
    if (pid == 0) {
        if (first != Py_None && PyObject_CallNoArgs(first) == NULL) {
            _exit(1); /* otherwise two processes would go on as this one */
        }
        wait_for(lifeline, &all);
        PyOS_AfterFork_Child();
        pthread_sigmask(SIG_SETMASK, &held, NULL);
        return PyLong_FromLong(0);
    }
    if (pid > 0 && line >= 0) {
        close(lifeline);
        tell_and_wait(line, told, (size_t)length, pid, &held);
    }
    PyOS_AfterFork_Parent();
    pthread_sigmask(SIG_SETMASK, &held, NULL);
    return pid_or_error(pid, error);
}

static PyMethodDef functions[] = {{"fork_sibling", fork_sibling, METH_NOARGS, fork_sibling_doc},
                                  {"fork_asleep", fork_asleep, METH_VARARGS, fork_asleep_doc},
                                  {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_forks", .m_doc = "Forks a kernel process.", .m_size = -1, .m_methods = functions,
};

PyMODINIT_FUNC PyInit__forks(void) { return PyModule_Create(&definition); }
