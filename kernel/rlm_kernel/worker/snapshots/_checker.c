/* Proves of a pickle, before any of it runs, that it builds plain values and calls our makers, and does nothing else.

It follows the opcodes with a stack of tags instead of values, as a verifier of byte code does. A pickle may name a
maker and call it. It may put items into a list, dict or set that it has made itself. Nothing else of pickle exists
here: no other global, no attribute that is set, no object made by its class, no registry, no reference to the outside.
A length that the bytes do not have is refused before anything is made of that length. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

enum tag { VALUE, LIST, DICT, SET, TUPLE, HOME, NAME, MAKER, BUFFER };

/* A growing array of tags, or of places on the stack. */
struct tags {
    unsigned char *items;
    size_t count, room;
};
struct places {
    size_t *items;
    size_t count, room;
};

struct walk {
    const unsigned char *data;
    size_t at, end;
    struct tags stack, memo;
    struct places marks;
    const char *home;
    size_t home_length;
    PyObject *makers; /* tuple of str */
    size_t buffers;   /* how many have not been taken yet */
};

enum verdict { SOUND, UNSOUND, NO_MEMORY };

static enum verdict push(struct tags *tags, unsigned char tag) {
    if (tags->count == tags->room) {
        size_t room = tags->room == 0 ? 1024 : tags->room * 2;
        unsigned char *items = PyMem_RawRealloc(tags->items, room);
        if (items == NULL) {
            return NO_MEMORY;
        }
        tags->items = items;
        tags->room = room;
    }
    tags->items[tags->count++] = tag;
    return SOUND;
}

static enum verdict push_mark(struct places *marks, size_t place) {
    if (marks->count == marks->room) {
        size_t room = marks->room == 0 ? 64 : marks->room * 2;
        size_t *items = PyMem_RawRealloc(marks->items, room * sizeof(size_t));
        if (items == NULL) {
            return NO_MEMORY;
        }
        marks->items = items;
        marks->room = room;
    }
    marks->items[marks->count++] = place;
    return SOUND;
}

/* How much of the stack an opcode without a mark may take. */
static size_t above_mark(const struct walk *walk) {
    return walk->stack.count - (walk->marks.count == 0 ? 0 : walk->marks.items[walk->marks.count - 1]);
}

static unsigned char top(const struct walk *walk, size_t depth) {
    return walk->stack.items[walk->stack.count - 1 - depth];
}

/* Take what is above `start`. A maker among it would become an item of a value, which code could call. */
static enum verdict drop_to(struct walk *walk, size_t start) {
    if (start < walk->stack.count && memchr(walk->stack.items + start, MAKER, walk->stack.count - start) != NULL) {
        return UNSOUND;
    }
    walk->stack.count = start;
    return SOUND;
}

static enum verdict drop(struct walk *walk, size_t count) {
    return above_mark(walk) < count ? UNSOUND : drop_to(walk, walk->stack.count - count);
}

static enum verdict drop_to_mark(struct walk *walk) {
    return walk->marks.count == 0 ? UNSOUND : drop_to(walk, walk->marks.items[--walk->marks.count]);
}

/* Whether the top of the stack, above the last mark, is a container of that kind. */
static enum verdict expect(const struct walk *walk, unsigned char tag) {
    return above_mark(walk) > 0 && top(walk, 0) == tag ? SOUND : UNSOUND;
}

static enum verdict skip(struct walk *walk, uint64_t count) {
    if (count > walk->end - walk->at) {
        return UNSOUND;
    }
    walk->at += count;
    return SOUND;
}

/* A little-endian number of so many bytes. */
static enum verdict number(struct walk *walk, size_t width, uint64_t *value) {
    if (width > walk->end - walk->at) {
        return UNSOUND;
    }
    *value = 0;
    for (size_t byte = 0; byte < width; byte++) {
        *value |= (uint64_t)walk->data[walk->at + byte] << (8 * byte);
    }
    walk->at += width;
    return SOUND;
}

static enum tag tag_of_text(const struct walk *walk, const unsigned char *text, size_t length) {
    if (length == walk->home_length && memcmp(text, walk->home, length) == 0) {
        return HOME;
    }
    for (Py_ssize_t place = 0; length <= 40 && place < PyTuple_GET_SIZE(walk->makers); place++) {
        Py_ssize_t size;
        const char *name = PyUnicode_AsUTF8AndSize(PyTuple_GET_ITEM(walk->makers, place), &size);
        if ((size_t)size == length && memcmp(text, name, length) == 0) {
            return NAME;
        }
    }
    return VALUE;
}

/* Bytes, an integer or a text, after its length. */
static enum verdict sized(struct walk *walk, size_t width, int is_text) {
    uint64_t length = 0;
    if (number(walk, width, &length) != SOUND) {
        return UNSOUND;
    }
    const unsigned char *start = walk->data + walk->at;
    if (skip(walk, length) != SOUND) {
        return UNSOUND;
    }
    return push(&walk->stack, is_text ? tag_of_text(walk, start, length) : VALUE);
}

static enum verdict plain(struct walk *walk, size_t width) {
    return skip(walk, width) == SOUND ? push(&walk->stack, VALUE) : UNSOUND;
}

static enum verdict replace(struct walk *walk, enum verdict taken, unsigned char tag) {
    return taken == SOUND ? push(&walk->stack, tag) : taken;
}

static enum verdict into(struct walk *walk, enum verdict taken, unsigned char tag) {
    return taken == SOUND ? expect(walk, tag) : taken;
}

/* Two entries with these tags become one. */
static enum verdict join(struct walk *walk, unsigned char below, unsigned char above, unsigned char made) {
    if (above_mark(walk) < 2 || top(walk, 1) != below || top(walk, 0) != above) {
        return UNSOUND;
    }
    walk->stack.count -= 2;
    return push(&walk->stack, made);
}

static enum verdict from_memo(struct walk *walk, size_t width) {
    uint64_t place = 0;
    if (number(walk, width, &place) != SOUND || place >= walk->memo.count) {
        return UNSOUND;
    }
    return push(&walk->stack, walk->memo.items[place]);
}

static enum verdict step(struct walk *walk) {
    unsigned char opcode = walk->data[walk->at++];
    uint64_t value = 0;
    switch (opcode) {
    case 'N': /* NONE */
    case 0x88: /* NEWTRUE */
    case 0x89: /* NEWFALSE */
        return plain(walk, 0);
    case 'K': /* BININT1 */
        return plain(walk, 1);
    case 'M': /* BININT2 */
        return plain(walk, 2);
    case 'J': /* BININT */
        return plain(walk, 4);
    case 'G': /* BINFLOAT */
        return plain(walk, 8);
    case 'C': /* SHORT_BINBYTES */
    case 0x8a: /* LONG1 */
        return sized(walk, 1, 0);
    case 'B': /* BINBYTES */
    case 0x8b: /* LONG4 */
        return sized(walk, 4, 0);
    case 0x8e: /* BINBYTES8 */
    case 0x96: /* BYTEARRAY8 */
        return sized(walk, 8, 0);
    case 0x8c: /* SHORT_BINUNICODE */
        return sized(walk, 1, 1);
    case 'X': /* BINUNICODE */
        return sized(walk, 4, 1);
    case 0x8d: /* BINUNICODE8 */
        return sized(walk, 8, 1);
    case 0x97: /* NEXT_BUFFER */
        return walk->buffers-- == 0 ? UNSOUND : push(&walk->stack, BUFFER);
    case 0x98: /* READONLY_BUFFER: of another object it would be a view that nobody has looked at */
        return expect(walk, BUFFER);
    case 0x94: /* MEMOIZE */
        return above_mark(walk) == 0 ? UNSOUND : push(&walk->memo, top(walk, 0));
    case 'h': /* BINGET */
        return from_memo(walk, 1);
    case 'j': /* LONG_BINGET */
        return from_memo(walk, 4);
    case '(': /* MARK */
        return push_mark(&walk->marks, walk->stack.count);
    case '0': /* POP */
        return drop(walk, 1);
    case '1': /* POP_MARK */
        return drop_to_mark(walk);
    case ']': /* EMPTY_LIST */
        return push(&walk->stack, LIST);
    case '}': /* EMPTY_DICT */
        return push(&walk->stack, DICT);
    case 0x8f: /* EMPTY_SET */
        return push(&walk->stack, SET);
    case ')': /* EMPTY_TUPLE */
        return push(&walk->stack, TUPLE);
    case 0x85: /* TUPLE1 */
    case 0x86: /* TUPLE2 */
    case 0x87: /* TUPLE3 */
        return replace(walk, drop(walk, opcode - 0x84), TUPLE);
    case 't': /* TUPLE */
        return replace(walk, drop_to_mark(walk), TUPLE);
    case 0x91: /* FROZENSET */
        return replace(walk, drop_to_mark(walk), VALUE);
    case 'a': /* APPEND */
        return into(walk, drop(walk, 1), LIST);
    case 's': /* SETITEM */
        return into(walk, drop(walk, 2), DICT);
    case 'e': /* APPENDS */
        return into(walk, drop_to_mark(walk), LIST);
    case 'u': /* SETITEMS */
        return into(walk, drop_to_mark(walk), DICT);
    case 0x90: /* ADDITEMS */
        return into(walk, drop_to_mark(walk), SET);
    case 0x93: /* STACK_GLOBAL */
        return join(walk, HOME, NAME, MAKER);
    case 'R': /* REDUCE */
        return join(walk, MAKER, TUPLE, VALUE);
    case 0x95: /* FRAME */
        return number(walk, 8, &value) == SOUND && value <= walk->end - walk->at ? SOUND : UNSOUND;
    case 0x80: /* PROTO */
        return number(walk, 1, &value) == SOUND && value == 5 && walk->stack.count == 0 ? SOUND : UNSOUND;
    case '.': /* STOP */
        if (walk->stack.count != 1 || walk->marks.count != 0) {
            return UNSOUND;
        }
        return drop_to(walk, 0);
    default:
        return UNSOUND;
    }
}

PyDoc_STRVAR(check_doc, "check(data, makers, home, buffers, /)\n--\n\n"
                        "Return -1 if the pickles in data are sound, else the place of the opcode that is not.");

static PyObject *check(PyObject *module, PyObject *args) {
    Py_buffer data;
    Py_ssize_t home_length, buffers;
    struct walk walk = {0};
    if (!PyArg_ParseTuple(args, "y*O!s#n:check", &data, &PyTuple_Type, &walk.makers, &walk.home, &home_length,
                          &buffers)) {
        return NULL;
    }
    enum verdict verdict = SOUND;
    for (Py_ssize_t place = 0; place < PyTuple_GET_SIZE(walk.makers); place++) {
        if (PyUnicode_AsUTF8(PyTuple_GET_ITEM(walk.makers, place)) == NULL) {
            PyBuffer_Release(&data);
            return NULL;
        }
    }
    walk.data = data.buf;
    walk.end = (size_t)data.len;
    walk.home_length = (size_t)home_length;
    walk.buffers = buffers < 0 ? 0 : (size_t)buffers;
    size_t began = 0;
    while (verdict == SOUND && walk.at < walk.end) {
        began = walk.at;
        verdict = step(&walk);
    }
    if (verdict == SOUND && (walk.stack.count != 0 || walk.marks.count != 0)) {
        began = walk.end;
        verdict = UNSOUND;
    }
    PyMem_RawFree(walk.stack.items);
    PyMem_RawFree(walk.memo.items);
    PyMem_RawFree(walk.marks.items);
    PyBuffer_Release(&data);
    if (verdict == NO_MEMORY) {
        return PyErr_NoMemory();
    }
    return PyLong_FromSsize_t(verdict == SOUND ? -1 : (Py_ssize_t)began);
}

static PyMethodDef functions[] = {{"check", check, METH_VARARGS, check_doc}, {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_checker", .m_doc = "Proves that a pickle does no harm.", .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__checker(void) { return PyModule_Create(&definition); }
