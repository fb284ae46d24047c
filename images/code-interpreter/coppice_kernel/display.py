"""What a result may look like and weigh."""

import math
import sys

TABLE_MIME = "application/vnd.coppice.table+json"
TABLE_ROWS = 100
TABLE_COLUMNS = 50
TABLE_TEXT = 1000  # characters of one cell or name

# Characters per MIME type; what is over is cut with a mark.  Images and JSON cannot be cut: they pass, or are left out.
LIMITS = {
    "text/plain": 128 * 1024,
    "text/html": 1024 * 1024,
    "text/latex": 256 * 1024,
    "text/markdown": 256 * 1024,
    "image/svg+xml": 8 * 1024 * 1024,
    "application/javascript": 8 * 1024 * 1024,
}
LIMIT_OTHER_TEXT = 1024 * 1024
LIMIT_BINARY = 32 * 1024 * 1024


# -- tables --------------------------------------------------------------------------------------------------------------


def _scalar(value, depth=0):
    """value as JSON: numbers that JSON lacks become null, everything unknown its text."""
    if value is None or value is True or value is False:
        return value
    kind = type(value)
    if kind is str:
        return value if len(value) <= TABLE_TEXT else value[:TABLE_TEXT] + "…"
    if kind is int:
        return value if -(2**63) <= value < 2**63 else str(value)
    if kind is float:
        return value if math.isfinite(value) else None
    if depth < 2:
        item = getattr(value, "item", None)  # numpy scalars
        if item is not None and type(value).__module__ == "numpy":
            unpacked = item()
            # datetime64[ns] unpacks to a bare count of nanoseconds
            return str(value) if type(value).__name__ in ("datetime64", "timedelta64") else _scalar(unpacked, depth + 1)
        if isinstance(value, (list, tuple)) and len(value) <= 20:
            return [_scalar(v, depth + 1) for v in value]
        isoformat = getattr(value, "isoformat", None)
        if isoformat is not None:
            try:
                # NaT has the method and differs from itself
                return None if value != value else isoformat()
            except Exception:
                pass
    try:
        if value != value:
            return None  # pandas.NaT, Decimal("NaN")
    except Exception:
        pass  # pandas.NA: its truth is undefined
    if kind.__name__ == "NAType":
        return None
    text = str(value)
    return text if len(text) <= TABLE_TEXT else text[:TABLE_TEXT] + "…"


def _name(value):
    return _scalar(value) if isinstance(value, str) else str(value)[:TABLE_TEXT]


def _pandas_table(frame):
    rows, columns = frame.shape
    part = frame.iloc[:TABLE_ROWS, :TABLE_COLUMNS]
    # By position: names may occur twice.
    lists = [[_scalar(v) for v in part.iloc[:, i].tolist()] for i in range(part.shape[1])]
    return {
        "shape": [rows, columns],
        "columns": [_name(c) for c in part.columns],
        "dtypes": [str(d) for d in part.dtypes],
        "index": [_scalar(i) for i in part.index.tolist()],
        "rows": [list(row) for row in zip(*lists)] if lists else [[] for _ in range(len(part))],
        "truncated": rows > TABLE_ROWS or columns > TABLE_COLUMNS,
    }


def _polars_table(frame):
    rows, columns = frame.shape
    part = frame[:TABLE_ROWS, :TABLE_COLUMNS]
    return {
        "shape": [rows, columns],
        "columns": [_name(c) for c in part.columns],
        "dtypes": [str(d) for d in part.dtypes],
        "index": list(range(part.shape[0])),
        "rows": [[_scalar(v) for v in row] for row in part.rows()],
        "truncated": rows > TABLE_ROWS or columns > TABLE_COLUMNS,
    }


def table_of(obj):
    """The table in obj as a dict, or None.  Imports nothing: what is not loaded cannot be an instance of it."""
    pandas = sys.modules.get("pandas")
    if pandas is not None:
        frame = getattr(pandas, "DataFrame", None)
        series = getattr(pandas, "Series", None)
        if frame is not None and isinstance(obj, frame):
            return _pandas_table(obj)
        if series is not None and isinstance(obj, series):
            name = obj.name if obj.name is not None else 0
            return _pandas_table(obj.iloc[: TABLE_ROWS + 1].to_frame(name)) | {
                "shape": [len(obj), 1],
                "truncated": len(obj) > TABLE_ROWS,
            }
    polars = sys.modules.get("polars")
    if polars is not None:
        frame = getattr(polars, "DataFrame", None)
        if frame is not None and isinstance(obj, frame):
            return _polars_table(obj)
    return None


def install_tables(shell):
    from IPython.core.formatters import BaseFormatter
    from traitlets import ObjectName, Unicode

    class TableFormatter(BaseFormatter):
        # The inline backend erases per-type printers of all formatters when it is activated; __call__ it leaves alone.
        format_type = Unicode(TABLE_MIME)
        print_method = ObjectName("_repr_coppice_table_")
        _return_type = dict

        def __call__(self, obj):
            if not self.enabled:
                return None
            try:
                return table_of(obj)
            except Exception:
                return None  # an odd frame still has its text

    formatter = shell.display_formatter
    formatter.formatters[TABLE_MIME] = TableFormatter(parent=formatter)


# -- limits --------------------------------------------------------------------------------------------------------------


def _cut(mime, text, limit):
    over = len(text) - limit
    if mime == "text/html":
        # A browser closes what is open at the end; only a row in half would look wrong.
        row = text.rfind("</tr>", limit // 2, limit)
        end = row + len("</tr>") if row >= 0 else limit
        return f"{text[:end]}<p>… {len(text) - end} characters cut</p>"
    if mime == "text/plain":
        head = limit * 7 // 8
        return f"{text[:head]}\n… {over} characters cut …\n{text[-(limit - head):]}"
    return f"{text[:limit]}\n… {over} characters cut …"


def limit_bundle(data, metadata):
    """Cuts in place what is too long; metadata["coppice"]["cut"] tells the original lengths."""
    cut = {}
    for mime, value in list(data.items()):
        if isinstance(value, str):
            textual = mime in LIMITS or mime.startswith("text/")
            limit = LIMITS.get(mime, LIMIT_OTHER_TEXT) if textual else LIMIT_BINARY
            if len(value) <= limit:
                continue
            cut[mime] = len(value)
            if mime.startswith("text/"):
                data[mime] = _cut(mime, value, limit)
            else:
                del data[mime]
        elif isinstance(value, (bytes, bytearray)) and len(value) > LIMIT_BINARY:
            cut[mime] = len(value)
            del data[mime]
    if cut:
        metadata["coppice"] = {"cut": cut}
        if not data:
            sizes = ", ".join(f"{mime}: {size}" for mime, size in cut.items())
            data["text/plain"] = f"<output left out, it is too large ({sizes} characters)>"


class Formatting:
    """Set while objects are turned into text: an exception then must not look like the cell's own (hooks.py)."""

    depth = 0
    failure = None  # (type name, text) of the first exception


PLAIN = (int, float, bool, complex, str, type(None))


def _has_only_text(formatter, kind):
    """Whether nobody has registered a printer for a builtin type, as sympy.init_printing() does."""
    others = [formatter.ipython_display_formatter, formatter.mimebundle_formatter]
    for mime, one in formatter.formatters.items():
        if mime == "text/plain":
            if not one.enabled:
                return False
        else:
            others.append(one)
    return not any(kind in one.type_printers or object in one.type_printers or one.deferred_printers for one in others)


def install_limits(shell):
    formatter = shell.display_formatter
    publisher = shell.display_pub
    format_stock = formatter.format
    publish_stock = publisher.publish

    def format(obj, include=None, exclude=None):
        # The commonest results: asking a dozen formatters in vain is a tenth of the time of a cell.
        kind = type(obj)
        if kind in PLAIN and not include and not exclude and _has_only_text(formatter, kind):
            # The text of a longer int is an error, of a longer str to be cut.
            if (kind is not str or len(obj) < 1000) and (kind is not int or obj.bit_length() < 10_000):
                text = formatter.formatters["text/plain"](obj)
                return ({} if text is None else {"text/plain": text}), {}
        outer, Formatting.failure = Formatting.failure, None
        Formatting.depth += 1
        try:
            data, metadata = format_stock(obj, include=include, exclude=exclude)
            failure = Formatting.failure
        finally:
            Formatting.depth -= 1
            Formatting.failure = outer
        if failure and isinstance(data, dict) and "text/plain" not in data:
            data["text/plain"] = f"<{type(obj).__name__} object; its text cannot be had: {failure}>"
        if isinstance(data, dict) and isinstance(metadata, dict):
            limit_bundle(data, metadata)
        return data, metadata

    def publish(data, metadata=None, *args, **kwargs):
        if isinstance(data, dict):
            data, metadata = dict(data), dict(metadata or {})
            limit_bundle(data, metadata)
        return publish_stock(data, metadata, *args, **kwargs)

    formatter.format = format
    publisher.publish = publish
