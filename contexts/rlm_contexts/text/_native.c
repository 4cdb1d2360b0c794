/* The inner loops of `lines`: making strings of lines, comparing and counting them, and finding where they start.

They exist for speed. str.split spends most of its time in a loop over single bytes, where memchr looks at 32 at once.

Code in a session can reach these functions and call them with any buffer, so they assume nothing about their
arguments. Another thread of the session may even change the buffer meanwhile. So each byte is read once, and no
decision rests on a second look.
*/

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <limits.h>
#include <stdint.h>
#include <string.h>

/* --- lines ---------------------------------------------------------------------------------------*/

/* Copy, and return whether all of it is ASCII.

The check looks at the bytes that were copied and not at the source once more. A thread that reads a file into the
source holds no lock, so a second look could see other bytes. A string whose header says ASCII must hold nothing else:
CPython uses its characters as indexes into tables of 128 entries.
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
        /* The last word overlaps with the one before, which saves a loop over single bytes at the end. */
        memcpy(&word, text + size - WORD, WORD);
        memcpy(to + size - WORD, &word, WORD);
        seen |= word;
    }
    return (seen & 0x8080808080808080) == 0;
}

/* Make the string of a line. `ascii` is a guess, and cleared once it was wrong: a text that is not ASCII would
otherwise pay for a vain copy of each line. */
static PyObject *make_line(const char *text, Py_ssize_t size, int *ascii) {
    if (*ascii && size > 1) { /* CPython keeps the empty string and those of one Latin-1 character as singletons */
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
    int crlf;
    if (!PyArg_ParseTuple(args, "y*p:split", &view, &crlf)) {
        return NULL;
    }
    PyObject *lines = PyList_New(0);
    if (lines != NULL && append_lines(lines, &view, crlf) < 0) {
        Py_CLEAR(lines);
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
        /* A counter of one byte, so that the compiler can count in every byte of a vector register. It is added up
        before it can overflow, after UCHAR_MAX bytes. */
        unsigned char few = 0;
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

/* A session's buffer may begin at any address, and an unaligned write through a pointer is undefined: so the number is
copied. A negative line becomes a huge one as size_t, which the bounds check refuses. */
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

static PyMethodDef functions[] = {
    {"split", split, METH_VARARGS,
     "split(view, crlf, /)\n--\n\nThe lines of whole lines of UTF-8.\n\n"
     "Args: crlf, false when no line ends in a carriage return, which is not part of the line.\n"
     "Raises: UnicodeDecodeError."},
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
    return PyModule_Create(&definition);
}
