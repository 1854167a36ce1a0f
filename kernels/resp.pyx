"""The Redis protocol (RESP 2 and 3) without copies: large replies are views into one buffer that is reused.

A worker's step reads the frames of all its peers, hundreds of kilobytes each. A client that makes a `bytes` of each
frame reads it twice and allocates its size every step; here the operating system writes it where the decoder reads it.
It is compiled because parsing some twenty short lines took a quarter of the Python time of a worker's step.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memchr, memcpy, memmove

#: Initial size of the buffer, bytes; it grows to the largest batch of replies.
cdef Py_ssize_t SMALLEST = 1 << 16
#: Arguments of this size or more, bytes, are passed to the socket without a copy; shorter ones are cheaper to join.
LARGE = 1 << 14

cdef Py_ssize_t UNCOPIED = LARGE
cdef enum:
    LONGEST_INT = 19  # digits of a signed 64-bit integer
    DEEPEST = 16  # lists within lists; ours are 5 deep
    LONGEST_LINE = 1 << 20
    LONGEST_BULK = 1 << 30  # bytes; Redis' own limit is half of it
    AT_ONCE = 1 << 24  # bytes that a bulk string takes at first: more only once these have come

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL


class ReplyError(Exception):
    """An error that the server replied with; the message is the server's, its first word the kind."""


def pack(list commands not None):
    """``commands`` in the format of the protocol, in pieces to be sent one after another.

    Parameters
    ----------
    commands : list of tuple
        Arguments are bytes, str, int or float. Bytes of size `LARGE` or more are a separate piece, without a copy.

    Returns
    -------
    list of bytes
    """
    cdef Packer packer = Packer()
    for command in commands:
        packer.command(command)
    return packer.done()


cdef class Packer:
    """The pieces packed so far, and the piece that is being written."""

    cdef list pieces
    cdef bytearray text
    cdef Py_ssize_t n

    def __cinit__(self):
        self.pieces, self.text, self.n = [], bytearray(1024), 0

    cdef int command(self, tuple command) except -1:
        cdef char digits[LONGEST_INT]
        cdef const char *text
        cdef Py_ssize_t size
        cdef bytes data
        self.head(c"*", len(command))
        for argument in command:
            if type(argument) is str:
                text = PyUnicode_AsUTF8AndSize(argument, &size)
            elif type(argument) is int and 0 <= argument < UNCOPIED:
                size = decimal(argument, digits)
                text = digits
            else:
                data = argument if type(argument) is bytes else as_bytes(argument)
                text, size = PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data)
            self.head(c"$", size)
            if size >= UNCOPIED and type(argument) is bytes:
                self.cut()
                self.pieces.append(argument)
            else:
                self.put(text, size)
            self.put(b"\r\n", 2)
        return 0

    cdef int head(self, char kind, Py_ssize_t number) except -1:
        cdef char line[LONGEST_INT + 3]
        line[0] = kind
        cdef Py_ssize_t n = 1 + decimal(number, line + 1)
        line[n], line[n + 1] = c"\r", c"\n"
        return self.put(line, n + 2)

    cdef int put(self, const char *data, Py_ssize_t size) except -1:
        if self.n + size > len(self.text):
            self.text.extend(bytes(self.n + size))
        memcpy(PyByteArray_AS_STRING(self.text) + self.n, data, size)
        self.n += size
        return 0

    cdef int cut(self) except -1:
        self.pieces.append(PyBytes_FromStringAndSize(PyByteArray_AS_STRING(self.text), self.n))
        self.n = 0
        return 0

    cdef list done(self):
        if self.n:
            self.cut()
        return self.pieces


cdef class ReplyReader:
    """Reads replies from a socket, or from another function that fills a buffer.

    Parameters
    ----------
    receive_into : callable
        Writes to the beginning of a memoryview and returns the number of bytes; 0 means the end (``EOFError``).
    """

    cdef object receive_into
    cdef bytearray buffer
    cdef object view
    cdef char *at
    cdef Py_ssize_t first, end, size  # [first, end): received and not read yet; size: capacity
    cdef int depth  # of the reply that is being read

    def __init__(self, receive_into):
        self.receive_into = receive_into
        self.first = self.end = 0
        self.use(bytearray(SMALLEST))

    cdef int use(self, bytearray buffer) except -1:
        self.buffer, self.view = buffer, memoryview(buffer)
        self.at, self.size = PyByteArray_AS_STRING(buffer), len(buffer)
        return 0

    def begin(self, receive_into=None):
        """Reuse the buffer: views returned so far become invalid. Bytes that were received but not read are kept.

        ``receive_into`` is a new source, which replaces the old one and its unread bytes.
        """
        if receive_into is not None:
            self.receive_into = receive_into
            self.first = self.end
        memmove(self.at, self.at + self.first, self.end - self.first)
        self.end -= self.first
        self.first = 0

    def read(self, *, bint views=False):
        """The next reply: int, float, bool, bytes, None, or a list of these; a map is a flat list, as in RESP 2.

        Parameters
        ----------
        views : bool
            Bulk strings as memoryviews, valid until `begin`, instead of bytes.

        Returns
        -------
        object
            A `ReplyError` is returned, not raised: it may be one of several replies, or inside a list.

        Raises
        ------
        EOFError
            The connection ended within a reply.
        ValueError
            The bytes received violate the protocol, or its limits here: 16 lists within each other, lines of 1 MiB,
            strings of 1 GiB.
        """
        self.depth = 0
        return self.reply(views)

    cdef object reply(self, bint views):
        cdef Py_ssize_t length = self.line(), n
        cdef const char *text = self.at + self.first
        cdef char kind = text[0]
        self.first += length + 2
        if kind == b"$":
            n = whole(text + 1, length - 1)
            return None if n < 0 else self.bulk(n, views)
        if kind == b":":
            return whole(text + 1, length - 1)
        if kind == b"*":
            n = whole(text + 1, length - 1)
            return None if n < 0 else self.several(n, views)
        if length == 0:
            raise ValueError("a reply of no kind")
        return self.rare(kind, text[1:length], views)

    cdef list several(self, long long n, bint views):
        if n < 0:
            raise ValueError("a reply of a negative number of replies")
        self.deeper()
        replies = [self.reply(views) for _ in range(n)]
        self.depth -= 1
        return replies

    cdef int deeper(self) except -1:
        self.depth += 1
        if self.depth > DEEPEST:
            raise ValueError(f"a reply of more than {DEEPEST} lists within each other")
        return 0

    cdef object rare(self, char kind, bytes text, bint views):
        """A reply of a rare kind, or of one that only RESP 3 has."""
        if kind == b"+":
            return text
        if kind == b"-":
            return ReplyError(text.decode("utf-8", "replace"))
        if kind == b"_":
            return None
        if kind == b"#":
            return text == b"t"
        if kind == b",":
            return float(text)
        if kind == b"(":
            return int(text)
        if kind == b"!":
            return ReplyError(str(self.bulk(count_of(text), True), "utf-8", "replace"))
        if kind == b"=":
            return self.bulk(count_of(text), views)[4:]  # without the text's format in front
        if kind == b"~":
            return self.several(count_of(text), views)
        if kind == b"%":
            return self.several(2 * count_of(text), views)
        if kind == b">" or kind == b"|":  # push data, or attributes of the next reply
            self.several(count_of(text) * (2 if kind == b"|" else 1), False)
            self.deeper()
            reply = self.reply(views)
            self.depth -= 1
            return reply
        raise ValueError(f"a reply of an unknown kind {chr(kind & 0xFF)!r}")

    cdef object bulk(self, long long n, bint views):
        """The next ``n`` bytes; the line end after them is skipped."""
        if not 0 <= n <= LONGEST_BULK:
            raise ValueError(f"a reply of {n} bytes")
        while self.end - self.first < n + 2:
            self.more(min(n + 2 - (self.end - self.first), AT_ONCE))
        cdef Py_ssize_t first = self.first, end = first + n
        if self.at[end] != b"\r" or self.at[end + 1] != b"\n":
            raise ValueError("a bulk reply without its end")
        self.first = end + 2
        return self.view[first:end] if views else PyBytes_FromStringAndSize(self.at + first, n)

    cdef Py_ssize_t line(self) except -1:
        """Receive until a line is complete; returns its length without the line end."""
        cdef Py_ssize_t looked = 0, n_waiting
        cdef const char *found
        while True:
            n_waiting = self.end - self.first
            found = NULL
            if n_waiting > looked + 1:
                found = <const char *>memchr(self.at + self.first + looked, b"\r", n_waiting - looked - 1)
            if found == NULL:
                looked = max(n_waiting - 1, 0)
                if looked > LONGEST_LINE:
                    raise ValueError(f"a line of more than {LONGEST_LINE} bytes")
                self.more(1)
            elif found[1] == b"\n":
                return found - (self.at + self.first)
            else:
                looked = found + 1 - (self.at + self.first)

    cdef int more(self, Py_ssize_t wanted) except -1:
        """Receive at least one byte, with room for ``wanted`` bytes."""
        cdef Py_ssize_t n_waiting = self.end - self.first, n_received
        cdef bytearray buffer
        if self.size - self.end < wanted:
            # Views may point into the old buffer, so it is not resized but replaced.
            buffer = bytearray(max(2 * self.size, n_waiting + wanted + SMALLEST))
            memcpy(PyByteArray_AS_STRING(buffer), self.at + self.first, n_waiting)
            self.first, self.end = 0, n_waiting
            self.use(buffer)
        n_received = self.receive_into(self.view[self.end :])
        if n_received <= 0 or n_received > self.size - self.end:
            raise EOFError("the connection ended")
        self.end += n_received
        return 0


cdef long long count_of(bytes text) except? -1:
    """The number of items or bytes in a line; not so many that twice the number is none any more."""
    cdef long long n = whole(PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
    if not 0 <= n < 1 << 40:
        raise ValueError(f"a reply of {n} parts")
    return n


cdef bytes as_bytes(argument):
    """An argument of a rare type as bytes."""
    if isinstance(argument, (bytes, bytearray, memoryview)):
        return bytes(argument)
    if isinstance(argument, str):
        return argument.encode()
    if isinstance(argument, (int, float)):
        return repr(argument).encode()
    raise TypeError(f"an argument is of type {type(argument).__name__}: must be bytes, str, int or float")


cdef Py_ssize_t decimal(Py_ssize_t number, char *digits) noexcept:
    """Write ``number`` (>= 0) as text; returns the number of digits."""
    cdef char backwards[LONGEST_INT]
    cdef Py_ssize_t n = 0, k
    while True:
        backwards[n] = <char>(c"0" + number % 10)
        n += 1
        number //= 10
        if not number:
            break
    for k in range(n):
        digits[k] = backwards[n - 1 - k]
    return n


cdef long long whole(const char *text, Py_ssize_t n) except? -1:
    """The integer in a whole line."""
    cdef Py_ssize_t at = 0
    cdef unsigned long long value = 0
    cdef bint is_negative = n > 0 and text[0] == b"-"
    if is_negative or (n > 0 and text[0] == b"+"):
        at = 1
    if at >= n or n - at > LONGEST_INT:
        raise ValueError("a reply without its number")
    while at < n:
        if not b"0" <= text[at] <= b"9":
            raise ValueError("a reply whose number is none")
        value = 10 * value + <unsigned long long>(text[at] - c'0')
        at += 1
    if value > <unsigned long long>1 << 63 or (value >> 63 and not is_negative):
        raise ValueError("a reply whose number is too large")
    return -<long long>value if is_negative else <long long>value
