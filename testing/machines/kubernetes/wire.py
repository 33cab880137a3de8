"""Protocol buffers, byte by byte: messages of kubelets and container runtimes without code that is generated from their interfaces."""


def number(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def fields(data):
    """The fields of a message: number to values, bytes or integers."""
    found, at = {}, 0
    while at < len(data):
        key, at = number(data, at)
        value, at = number(data, at)
        if key & 7 == 2:
            value, at = data[at:at + value], at + value
        else:
            assert key & 7 == 0, f"wire type {key & 7}"
        found.setdefault(key >> 3, []).append(value)
    return found


def varint(value):
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def message(**given):
    """A message from fields like f1="text", f2=5, f3=b"...", f4=[...]."""
    out = b""
    for name, values in given.items():
        key = int(name[1:])
        for value in values if isinstance(values, list) else [values]:
            if isinstance(value, int):
                out += varint(key << 3) + varint(value)
            else:
                data = value.encode() if isinstance(value, str) else value
                out += varint(key << 3 | 2) + varint(len(data)) + data
    return out


def pairs(values):
    """Entries of a map of texts, or of a list of keys with values."""
    return [message(f1=key, f2=value) for key, value in values.items()]
