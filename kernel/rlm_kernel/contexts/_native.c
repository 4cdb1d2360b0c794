/* The two inner loops of `lines`: making strings of lines, and finding the line that is asked for.

What str.split takes most of its time for is a loop that looks at each byte by itself; memchr looks at 32 of them. An
index that is answered here costs a tenth of a call of a method in Python.

Code in a session reaches these functions and methods: nothing is assumed of their arguments.
*/

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <limits.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

/* --- memory in large pages -----------------------------------------------------------------------

CPython takes the memory of small objects from the system in arenas of 1 MiB, which the system clears and hands over in
pages of 4 KiB: 35,000 times for the lines of 100 MiB, and that takes longer than all the rest when they are all kept.
In pages of 2 MiB it is a seventh of the work. So while lines are made, and only then, arenas come from here; they go
back as all others do, by munmap.
*/

enum { ARENA = 1 << 20, LARGE_PAGE = 1 << 21, TAKEN = 8 * ARENA };

static PyObjectArenaAllocator usual;
static char *spare;
static size_t spare_bytes;

/* Reserve arenas at a boundary of large pages; leave `spare_bytes` as it is if the system has none. */
static void take_arenas(void) {
#ifdef MADV_HUGEPAGE
    char *found = mmap(NULL, TAKEN + LARGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (found == MAP_FAILED) {
        return;
    }
    size_t before = -(uintptr_t)found % LARGE_PAGE;
    if (before > 0) {
        munmap(found, before);
    }
    if (before < LARGE_PAGE) {
        munmap(found + before + TAKEN, LARGE_PAGE - before);
    }
    spare = found + before;
    spare_bytes = TAKEN;
    madvise(spare, TAKEN, MADV_HUGEPAGE);
#endif
}

static void *large_arena(void *context, size_t size) {
    (void)context;
    if (size == ARENA && spare_bytes == 0) {
        take_arenas();
    }
    if (size != ARENA || spare_bytes == 0) {
        return usual.alloc(usual.ctx, size);
    }
    char *arena = spare;
    spare += ARENA;
    spare_bytes -= ARENA;
    return arena;
}

/* --- lines ---------------------------------------------------------------------------------------*/

/* Copy, and say whether all of it is ASCII.

What is looked at is what was copied: a thread that reads a file into this memory holds no lock meanwhile, and CPython
looks up the characters of a string that says it is ASCII in tables that end there.
*/
static int copy_ascii(char *restrict to, const char *restrict text, Py_ssize_t size) {
    enum { WORD = sizeof(uint64_t) };
    uint64_t seen = 0, word;
    if (size < WORD) {
        while (size > 0) {
            unsigned char byte = text[--size];
            to[size] = (char)byte;
            seen |= byte;
        }
    } else {
        for (Py_ssize_t at = 0; at < size - WORD; at += WORD) {
            memcpy(&word, text + at, WORD);
            memcpy(to + at, &word, WORD);
            seen |= word;
        }
        memcpy(&word, text + size - WORD, WORD); /* the last one overlaps with the one before */
        memcpy(to + size - WORD, &word, WORD);
        seen |= word;
    }
    return (seen & 0x8080808080808080) == 0;
}

/* A line. `ascii` says what is expected of it, and is told otherwise. */
static PyObject *make_line(const char *text, Py_ssize_t size, int *ascii) {
    if (*ascii && size > 1) { /* characters of Latin-1 and the empty string are there already */
        PyObject *line = PyUnicode_New(size, 0x7f);
        if (line == NULL) {
            return NULL;
        }
        if (copy_ascii((char *)PyUnicode_1BYTE_DATA(line), text, size)) {
            return line;
        }
        Py_DECREF(line);
        *ascii = 0;
    }
    return PyUnicode_DecodeUTF8(text, size, NULL);
}

static int append_lines(PyObject *lines, const Py_buffer *view, int crlf) {
    const char *text = view->buf, *end = text + view->len;
    int ascii = 1;
    while (text < end) {
        const char *newline = memchr(text, '\n', end - text);
        const char *stop = newline == NULL ? end : newline;
        int returns = crlf && stop > text && stop[-1] == '\r';
        PyObject *line = make_line(text, stop - text - returns, &ascii);
        if (line == NULL) {
            return -1;
        }
        int failed = PyList_Append(lines, line);
        Py_DECREF(line);
        if (failed) {
            return -1;
        }
        text = stop + 1;
    }
    return 0;
}

static PyObject *split(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer view;
    int crlf, large;
    if (!PyArg_ParseTuple(args, "y*pp:split", &view, &crlf, &large)) {
        return NULL;
    }
    PyObject *lines = PyList_New(0);
    if (lines != NULL) {
        PyObjectArenaAllocator ours = {NULL, large_arena, usual.free};
        if (large) {
            PyObject_SetArenaAllocator(&ours);
        }
        if (append_lines(lines, &view, crlf) < 0) {
            Py_CLEAR(lines);
        }
        PyObject_SetArenaAllocator(&usual);
    }
    PyBuffer_Release(&view);
    return lines;
}

static PyObject *equal_lines(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer view, wanted;
    int crlf;
    if (!PyArg_ParseTuple(args, "y*y*p:equal_lines", &view, &wanted, &crlf)) {
        return NULL;
    }
    const char *text = view.buf, *end = text + view.len;
    Py_ssize_t line = 0;
    PyObject *found = PyList_New(0);
    for (; found != NULL && text < end; line++) {
        const char *newline = memchr(text, '\n', end - text);
        const char *stop = newline == NULL ? end : newline;
        int returns = crlf && stop > text && stop[-1] == '\r';
        if (stop - text - returns == wanted.len && memcmp(text, wanted.buf, wanted.len) == 0) {
            PyObject *number = PyLong_FromSsize_t(line);
            if (number == NULL || PyList_Append(found, number) < 0) {
                Py_CLEAR(found);
            }
            Py_XDECREF(number);
        }
        text = stop + 1;
    }
    PyBuffer_Release(&wanted);
    PyBuffer_Release(&view);
    return found == NULL ? NULL : Py_BuildValue("Nn", found, line);
}

/* --- how many lines there are --------------------------------------------------------------------*/

static Py_ssize_t count_newlines(const char *text, Py_ssize_t size) {
    Py_ssize_t found = 0;
    while (size > 0) {
        unsigned char few = 0; /* a number of one byte, so that the compiler can count in all bytes of a register */
        Py_ssize_t some = size < UCHAR_MAX ? size : UCHAR_MAX;
        for (Py_ssize_t at = 0; at < some; at++) {
            few += text[at] == '\n';
        }
        found += few;
        text += some;
        size -= some;
    }
    return found;
}

static PyObject *ranks(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer view;
    Py_ssize_t block;
    unsigned long long rank;
    if (!PyArg_ParseTuple(args, "y*nK:ranks", &view, &block, &rank)) {
        return NULL;
    }
    PyObject *found = NULL;
    if (block < 1) {
        PyErr_SetString(PyExc_ValueError, "a block has at least one byte");
    } else {
        found = PyBytes_FromStringAndSize(NULL, view.len / block * (Py_ssize_t)sizeof rank);
    }
    for (Py_ssize_t at = 0; found != NULL && at < view.len / block; at++) {
        rank += count_newlines((char *)view.buf + at * block, block);
        memcpy(PyBytes_AS_STRING(found) + at * (Py_ssize_t)sizeof rank, &rank, sizeof rank);
    }
    PyBuffer_Release(&view);
    return found;
}

/* --- where lines start --------------------------------------------------------------------------*/

static Py_ssize_t count_characters(const char *text, const char *end) {
    Py_ssize_t found = 0;
    while (text < end) {
        found += (*text++ & 0xc0) != 0x80;
    }
    return found;
}

/* Buffers of session code begin at any address, so numbers are copied; a line below zero is one too high here. */
static void put_start(const Py_buffer *starts, size_t line, uint64_t at) {
    uint32_t few = (uint32_t)at;
    if (starts->itemsize == 8 && line < (size_t)starts->len / 8) {
        memcpy((char *)starts->buf + line * 8, &at, 8);
    } else if (starts->itemsize == 4 && line < (size_t)starts->len / 4) {
        memcpy((char *)starts->buf + line * 4, &few, 4);
    }
}

static PyObject *line_starts(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer view, starts;
    Py_ssize_t line;
    unsigned long long at;
    int ascii;
    if (!PyArg_ParseTuple(args, "y*w*nKp:line_starts", &view, &starts, &line, &at, &ascii)) {
        return NULL;
    }
    const char *text = view.buf, *end = text + view.len;
    size_t next = line;
    while (text < end) {
        const char *newline = memchr(text, '\n', end - text);
        const char *stop = newline == NULL ? end : newline + 1;
        at += ascii ? stop - text : count_characters(text, stop);
        if (newline != NULL) {
            put_start(&starts, next++, at);
        }
        text = stop;
    }
    PyBuffer_Release(&starts);
    PyBuffer_Release(&view);
    return Py_BuildValue("nK", (Py_ssize_t)next, at);
}

/* --- an index that is answered at once ----------------------------------------------------------*/

typedef struct {
    PyObject_HEAD
    PyObject *lines; /* a list of those that are there already, or NULL */
    Py_ssize_t first;
    PyObject *content; /* with the next ones: lines are cut out of it */
    Py_buffer starts;
    Py_ssize_t start, size;
    int crlf;
} LineCache;

static PyObject *fetch_name;

static uint64_t start_of(const Py_buffer *starts, Py_ssize_t line) {
    uint64_t at = 0;
    uint32_t few = 0;
    if (line >= starts->len / starts->itemsize) {
        return 0;
    }
    if (starts->itemsize == 8) {
        memcpy(&at, (char *)starts->buf + line * 8, 8);
        return at;
    }
    memcpy(&few, (char *)starts->buf + line * 4, 4);
    return few;
}

static PyObject *cut_line(const LineCache *self, Py_ssize_t line) {
    Py_ssize_t low = start_of(&self->starts, line), high = start_of(&self->starts, line + 1) - 1;
    if (self->crlf && low >= 0 && high > low && high <= PyUnicode_GET_LENGTH(self->content) &&
        PyUnicode_READ_CHAR(self->content, high - 1) == '\r') {
        high--;
    }
    return PyUnicode_Substring(self->content, low, high);
}

static PyObject *cache_subscript(PyObject *object, PyObject *key) {
    const LineCache *self = (LineCache *)object;
    if (PyLong_CheckExact(key)) {
        Py_ssize_t at = PyLong_AsSsize_t(key);
        if (at == -1 && PyErr_Occurred()) {
            PyErr_Clear();
        } else if (self->lines != NULL && at >= self->first && at - self->first < PyList_GET_SIZE(self->lines)) {
            return Py_NewRef(PyList_GET_ITEM(self->lines, at - self->first));
        } else if (at >= 0 && at < self->size && self->content != NULL) {
            return cut_line(self, self->start + at);
        }
    }
    return PyObject_CallMethodOneArg(object, fetch_name, key);
}

/* Change what lines are cut from. What is let go may run code that asks this object, so it goes last. */
static void put_content(LineCache *self, PyObject *content, Py_buffer starts) {
    PyObject *old_content = self->content;
    Py_buffer old_starts = self->starts;
    self->content = content;
    self->starts = starts;
    Py_XDECREF(old_content);
    PyBuffer_Release(&old_starts); /* nothing, if there are none */
}

static int cache_clear(PyObject *object) {
    Py_CLEAR(((LineCache *)object)->lines);
    put_content((LineCache *)object, NULL, (Py_buffer){0});
    return 0;
}

static PyObject *cache_answer(PyObject *object, PyObject *args) {
    LineCache *self = (LineCache *)object;
    PyObject *lines;
    Py_ssize_t first;
    if (!PyArg_ParseTuple(args, "O!n:_answer", &PyList_Type, &lines, &first)) {
        return NULL;
    }
    if (first < 0) {
        PyErr_SetString(PyExc_ValueError, "lines are counted from 0");
        return NULL;
    }
    PyObject *old = self->lines;
    self->lines = Py_NewRef(lines);
    self->first = first;
    Py_XDECREF(old);
    Py_RETURN_NONE;
}

static PyObject *cache_cut_from(PyObject *object, PyObject *args) {
    LineCache *self = (LineCache *)object;
    PyObject *content;
    Py_buffer starts;
    Py_ssize_t start, size;
    int crlf;
    if (!PyArg_ParseTuple(args, "Uy*nnp:_cut_from", &content, &starts, &start, &size, &crlf)) {
        return NULL;
    }
    if (start < 0 || size < 0 || (starts.itemsize != 4 && starts.itemsize != 8) ||
        size >= starts.len / starts.itemsize - start) {
        PyBuffer_Release(&starts);
        PyErr_SetString(PyExc_ValueError, "these are no lines that start there");
        return NULL;
    }
    self->start = start;
    self->size = size;
    self->crlf = crlf;
    put_content(self, Py_NewRef(content), starts);
    Py_RETURN_NONE;
}

static int cache_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((LineCache *)self)->lines);
    Py_VISIT(((LineCache *)self)->content);
    Py_VISIT(((LineCache *)self)->starts.obj);
    return 0;
}

static void cache_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_TRASHCAN_BEGIN(self, cache_dealloc) /* one may hold another in its list, and so on */
    cache_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
    Py_TRASHCAN_END
}

static PyMethodDef cache_methods[] = {
    {"_answer", cache_answer, METH_VARARGS,
     "Answer with the lines of a list from now on, the first of which has the number `first`."},
    {"_cut_from", cache_cut_from, METH_VARARGS,
     "Cut lines that are not cached out of a string from now on; none are cached then.\n\n"
     "Args: the string; where each line of it starts and one after the last would; the first of these lines and how\n"
     "many there are; whether some end in a carriage return that is not part of them."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot cache_slots[] = {
    {Py_tp_doc, "Lines that were decoded last; `_fetch(key)` is asked for all others."},
    {Py_mp_subscript, cache_subscript},
    {Py_tp_traverse, cache_traverse},
    {Py_tp_clear, cache_clear},
    {Py_tp_dealloc, cache_dealloc},
    {Py_tp_methods, cache_methods},
    {0, NULL},
};

static PyType_Spec cache_spec = {
    .name = "rlm_kernel.contexts._native.LineCache",
    .basicsize = sizeof(LineCache),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = cache_slots,
};

static PyMethodDef functions[] = {
    {"split", split, METH_VARARGS,
     "split(view, crlf, large, /)\n--\n\nThe lines of whole lines of UTF-8.\n\n"
     "Args: crlf, false when no line ends in a carriage return, which is not part of the line; large, true when the\n"
     "strings had better come in large pages of memory.\nRaises: UnicodeDecodeError."},
    {"equal_lines", equal_lines, METH_VARARGS,
     "equal_lines(view, wanted, crlf, /)\n--\n\nWhich lines of whole lines of UTF-8 are the one that is wanted,\n"
     "counted from 0, and how many there are."},
    {"ranks", ranks, METH_VARARGS,
     "ranks(view, block, rank, /)\n--\n\nHow many newlines there are up to the end of each whole block,\n"
     "if there are `rank` before the first: numbers of 8 bytes each in the machine's byte order."},
    {"line_starts", line_starts, METH_VARARGS,
     "line_starts(view, starts, line, at, ascii, /)\n--\n\nWrite down where the line after each newline starts.\n\n"
     "Args: whole lines of UTF-8; the array to write to; the number of the line after the first newline; the number of\n"
     "the first character; whether all of it is ASCII.\n"
     "Returns: the number of the line after the next newline, and of the character after the last one."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_native",
    .m_doc = "The inner loops over lines.",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__native(void) {
    PyObject *module = PyModule_Create(&definition);
    PyObject *type = PyType_FromSpec(&cache_spec);
    fetch_name = PyUnicode_InternFromString("_fetch");
    PyObject_GetArenaAllocator(&usual);
    if (module == NULL || type == NULL || fetch_name == NULL || PyModule_AddObjectRef(module, "LineCache", type) < 0) {
        Py_CLEAR(module);
    }
    Py_XDECREF(type);
    return module;
}
