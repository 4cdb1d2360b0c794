# %%
import struct, base64, binascii, hashlib, zlib
HDR = struct.Struct(">2sBHI")
def pack(kind: int, payload: bytes) -> bytes:
    return HDR.pack(b"PK", kind, len(payload), zlib.crc32(payload)) + payload
stream = b"".join(pack(k, p) for k, p in [(1, b"hello"), (2, bytes(range(16))), (1, "żółw".encode())])
print(len(stream), stream.hex(" ", 4))
# %%
def unpack(buf):
    view, off = memoryview(buf), 0
    while off < len(view):
        magic, kind, n, crc = HDR.unpack_from(view, off)
        if magic != b"PK":
            raise ValueError(f"bad magic at {off}: {magic!r}")
        off += HDR.size
        body = bytes(view[off : off + n])
        if zlib.crc32(body) != crc:
            raise ValueError(f"crc mismatch in packet at {off}")
        yield kind, body
        off += n
for kind, body in unpack(stream):
    print(kind, body, body.decode("utf-8", errors="replace") if kind == 1 else body.hex())
# %%
broken = bytearray(stream)
broken[12] ^= 0x40
try:
    list(unpack(broken))
except ValueError as e:
    print(e)
b64 = base64.b64encode(stream).decode()
print(b64, base64.b64decode(b64) == stream)
print(base64.urlsafe_b64encode(b"\xfb\xff\xfe"), binascii.crc_hqx(b"123", 0), base64.b32encode(b"hi"))
# %%
for algo in ("md5", "sha1", "sha256", "blake2b"):
    h = hashlib.new(algo)
    h.update(stream)
    print(f"{algo:8} {h.hexdigest()[:24]}…")
print(int.from_bytes(b"\x01\x00", "little"), (1024).to_bytes(3, "big"), struct.calcsize("<iqd"))
packed = zlib.compress(b"abc" * 500, 9)
print(len(packed) < 40, zlib.decompress(packed).count(b"bca"))
