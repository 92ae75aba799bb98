"""
Fingerprints of molecules as views
==================================

Several fingerprints describe the same molecules: which atoms there are, which chains of
atoms, which neighbourhoods. Instead of choosing one, let the weights choose, here to
predict boiling points.
"""

# %%
# The molecules
# -------------
# Small organic molecules as SMILES strings, with boiling points at normal pressure in
# degrees Celsius, rounded to a degree as in textbooks.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import KFold, cross_val_predict

from kernelweave import MultipleKernelRidge

DATA = """
CCCCC 36  CCCCCC 69  CCCCCCC 98  CCCCCCCC 126  CCCCCCCCC 151  CCCCCCCCCC 174
CC(C)CC 28  CC(C)(C)C 10  CC(C)CCC 60  CCC(C)CC 63  CC(C)(C)CC 50  CC(C)C(C)C 58
CC(C)CC(C)(C)C 99  C1CCCC1 49  C1CCCCC1 81  CC1CCCCC1 101  C=CCCC 30  C=CCCCC 63
C=CCCCCC 94  C=CCCCCCC 121  C1=CCCCC1 83  c1ccccc1 80  Cc1ccccc1 111
CCc1ccccc1 136  Cc1ccccc1C 144  Cc1cccc(C)c1 139  Cc1ccc(C)cc1 138
CC(C)c1ccccc1 152  C=Cc1ccccc1 145  Cc1cc(C)cc(C)c1 165  CO 65  CCO 78  CCCO 97
CCCCO 118  CCCCCO 138  CCCCCCO 157  CCCCCCCO 176  CCCCCCCCO 195  CC(C)O 83
CCC(C)O 99  CC(C)CO 108  CC(C)(C)O 82  OC1CCCCC1 162  OCc1ccccc1 205  Oc1ccccc1 182
OCCO 197  OCC(O)CO 290  CC(=O)C 56  CCC(=O)C 80  CCCC(=O)C 102  CCC(=O)CC 102
CCCCC(=O)C 128  CCCCCC(=O)C 151  O=C1CCCC1 131  O=C1CCCCC1 156  CC(=O)c1ccccc1 202
CC(C)CC(=O)C 117  CCC=O 48  CCCC=O 75  CCCCC=O 103  CCCCCC=O 130  O=Cc1ccccc1 179
CC(=O)O 118  CCC(=O)O 141  CCCC(=O)O 164  CCCCC(=O)O 186  CCCCCC(=O)O 205
CC(=O)OC 57  CC(=O)OCC 77  CC(=O)OCCC 102  CC(=O)OCCCC 126  CCC(=O)OC 80
CCC(=O)OCC 99  CCCC(=O)OCC 121  CCOCC 35  CCCOCCC 90  CCCCOCCCC 141  C1CCOC1 66
C1COCCO1 101  COC(C)(C)C 55  COc1ccccc1 154  CCCN 48  CCCCN 78  CCCCCN 104
CCCCCCN 131  CCNCC 56  CCN(CC)CC 89  CCCNCCC 110  C1CCNCC1 106  C1CCNC1 87
C1COCCN1 129  NC1CCCCC1 134  Nc1ccccc1 184  c1ccncc1 115  CC#N 82  CCC#N 97
CCCC#N 118  N#Cc1ccccc1 191  ClCCl 40  ClC(Cl)Cl 61  ClC(Cl)(Cl)Cl 77  CCCCl 47
CCCCCl 78  ClCCCl 84  CCCBr 71  CCCCBr 102  Clc1ccccc1 132  Brc1ccccc1 156
Fc1ccccc1 85  CN(C)C=O 153  CS(=O)C 189
"""
smiles, boiling = DATA.split()[::2], np.array(DATA.split()[1::2], dtype=float)
print(f"{len(smiles)} molecules, from {boiling.min():.0f} to {boiling.max():.0f} °C")

# %%
# From strings to graphs to counts
# --------------------------------
# For real work, take fingerprints from RDKit or scikit-fingerprints; the lines below
# read only the SMILES above, so that this example needs neither. A molecule becomes a
# graph. Chains are all paths of up to four atoms; neighbourhoods are those of Morgan's
# algorithm, each atom described by its own and its neighbours' descriptions, round
# after round, as in the Weisfeiler-Lehman kernel on graphs.

import re
from collections import Counter


def graph(text):
    """Atoms, and for each atom its bonds to others: {other: bond}."""
    atoms, bonds, open_rings, branches = [], [], {}, []
    last, bond = None, "-"
    for token in re.findall(r"Br|Cl|[A-Za-z]|[()=#]|\d", text):
        if token in "=#":
            bond = token
        elif token == "(":
            branches.append(last)
        elif token == ")":
            last = branches.pop()
        elif token.isdigit() and token not in open_rings:
            open_rings[token] = last
        else:
            other = open_rings.pop(token) if token.isdigit() else last
            if not token.isdigit():
                atoms.append(token)
                bonds.append({})
                last = len(atoms) - 1
            if other is not None:
                aromatic = atoms[last].islower() and atoms[other].islower()
                bonds[last][other] = bonds[other][last] = ":" if aromatic else bond
            bond = "-"
    return atoms, bonds


def elements(text):
    """Atoms, the hydrogens on them, and bonds."""
    atoms, bonds = graph(text)
    free = {"C": 4, "N": 3, "O": 2, "S": 2, "c": 3, "n": 2}
    order = {"-": 1, "=": 2, "#": 3, ":": 1}
    found = Counter(atoms)
    for atom, own in zip(atoms, bonds, strict=True):
        found[f"H on {atom}"] += max(
            0, free.get(atom, 1) - sum(order[b] for b in own.values())
        )
        found.update(own.values())
    return found


def chains(text, longest=4):
    """Paths of up to four atoms, read in both directions."""
    atoms, bonds = graph(text)
    found, paths = Counter(), [((i,), atoms[i]) for i in range(len(atoms))]
    for _ in range(longest):
        found.update(name for _, name in paths)
        paths = [
            ((*path, j), name + bond + atoms[j])
            for path, name in paths
            for j, bond in bonds[path[-1]].items()
            if j not in path
        ]
    return found


def neighbourhoods(text, rounds=2):
    """Descriptions of atoms by their neighbours, of radius 0, 1 and 2."""
    atoms, bonds = graph(text)
    names = [f"{a}{len(own)}" for a, own in zip(atoms, bonds, strict=True)]
    found = Counter(names)
    for _ in range(rounds):
        names = [
            f"{names[i]}({','.join(sorted(b + names[j] for j, b in own.items()))})"
            for i, own in enumerate(bonds)
        ]
        found.update(names)
    return found


# %%
# Three views
# -----------
# Each view is a table of counts. The first two get the kernels ``"auto"``; the sparse
# neighbourhoods get the usual kernel for fingerprints, Tanimoto's, as a function of our
# own.

from sklearn.feature_extraction import DictVectorizer


def tanimoto(X, Z):
    """Shared counts over all counts: (n, m)."""
    shared = np.minimum(X[:, None, :], Z[None, :, :]).sum(axis=2)
    return shared / (X.sum(axis=1)[:, None] + Z.sum(axis=1)[None] - shared)


tables, views, start = [], [], 0
for name, count, kernel in (
    ("elements", elements, "auto"),
    ("chains", chains, "auto"),
    ("neighbourhoods", neighbourhoods, tanimoto),
):
    counts = DictVectorizer(sparse=False).fit_transform([count(s) for s in smiles])
    tables.append(counts)
    stop = start + counts.shape[1]
    views.append((name, kernel, slice(start, stop)))
    start = stop
X = np.hstack(tables)
print({name: columns.stop - columns.start for name, _, columns in views})

# %%
# Which fingerprint?
# ------------------
# Mean error of predictions for molecules left out, in ten folds, with its standard
# error over the molecules. Atoms, and the hydrogens on them that form hydrogen bonds,
# go a long way alone; larger pieces reduce the error further. Each fingerprint adds
# something, so equal weights do as well as learned ones here: the gain is in not having
# to choose one.

folds = KFold(10, shuffle=True, random_state=0)
predicted = {}
for view in views:
    alone = MultipleKernelRidge([view], cv=None)
    predicted[view[0]] = cross_val_predict(alone, X, boiling, cv=folds)
equal = MultipleKernelRidge(views, norm=float("inf"), cv=None)
predicted["equal weights"] = cross_val_predict(equal, X, boiling, cv=folds)
model = MultipleKernelRidge(views, norm=1, cv=None)
predicted["learned weights"] = cross_val_predict(model, X, boiling, cv=folds)

figure, axes = plt.subplots(
    1, 3, figsize=(10, 3.2), layout="constrained", width_ratios=[1.2, 1, 1.1]
)
errors = {name: abs(found - boiling) for name, found in predicted.items()}
axes[0].barh(
    list(errors),
    [error.mean() for error in errors.values()],
    xerr=[error.std() / np.sqrt(len(error)) for error in errors.values()],
    color=["#8C8C8C"] * 3 + ["#56B4E9", "#0072B2"],
    error_kw={"elinewidth": 1},
)
axes[0].invert_yaxis()
axes[0].set_xlabel("mean error [°C]")
shares = model.fit(X, boiling).view_shares_
axes[1].barh(list(shares), list(shares.values()), color="#0072B2")
axes[1].invert_yaxis()
axes[1].set_xlabel("share of the combined kernel")
axes[2].plot(boiling, predicted["learned weights"], ".", color="#0072B2")
axes[2].axline((0, 0), slope=1, color="black", linewidth=0.8)
axes[2].set_xlabel("boiling point [°C]")
axes[2].set_ylabel("predicted, left out [°C]")
for ax in axes:
    ax.spines[["top", "right"]].set_visible(False)

# %%
# The largest errors
# ------------------
# The boiling point, and its prediction. Dimethyl sulphoxide is the only molecule with
# sulphur, dimethylformamide the only amide, aniline the only aromatic amine, and
# glycerol has three hydroxyl groups: nothing in the rest of the data prepares a model
# for them.

worst = np.argsort(-errors["learned weights"])[:4]
for i in worst:
    print(f"{smiles[i]:14} {boiling[i]:4.0f}, {predicted['learned weights'][i]:4.0f}")
