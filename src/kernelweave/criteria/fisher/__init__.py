"""Fisher's criterion: total scatter, within-class scatter, block form, from moments."""

from kernelweave.criteria.fisher.block import BlockDual, BlockFisher
from kernelweave.criteria.fisher.total import Fisher, PrimalFisher
from kernelweave.criteria.fisher.within import WithinFisher

__all__ = ["BlockDual", "BlockFisher", "Fisher", "PrimalFisher", "WithinFisher"]
