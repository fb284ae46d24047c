"""What others take for the same work, printed behind a table as ratios.

Medians of a quiet hour on the same kind of machine (2 processors, kernel 6.18), not of the same run: they tell the order of magnitude.
CRIU 4.2.1, which has no incremental dumps there, as the kernel does not track dirty pages for it; gVisor 20240729.  A fork is made of a
dump and a restore by both.
"""

MS = {"ms": 1, "us": 1e-3}
FORK = {"CRIU's dump and restore of an ipykernel, to its first cell": 879 + 930, "gVisor's checkpoint and restore": 2296 + 1444}
PEERS = {  # ms
    "fork.to_cell_1024m": FORK,
    "fork.unready_1024m": FORK,
    "suspend.1024m_5m_dirty": {"CRIU's dump of an ipykernel": 879, "gVisor's checkpoint": 2296},
    "resume.1024m_to_cell": {"CRIU's restore of an ipykernel, to its first cell": 930, "gVisor's restore": 1444},
    "freeze.full.200mb": {"CRIU's dump": 264},
    "freeze.full.1024mb": {"CRIU's dump": 821},
    "thaw.first_instruction.200mb": {"CRIU's restore": 259},
    "thaw.first_instruction.1024mb": {"CRIU's restore": 764},
    "thaw.ipykernel.1024mb": {"gVisor's restore": 1444},
}


def print_ratios(rows):
    """rows: as in results.jsonl."""
    for row in rows:
        for what, ms in PEERS.get(row["name"], {}).items():
            ours = row["p50"] * MS[row["unit"]]
            print(f"{row['name']}: {ours:.1f} ms, {ours / ms:.4f} of the {ms} ms of {what}", flush=True)
