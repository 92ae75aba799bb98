"""Learning as plain functions: ``learn(sample, options) -> Learned``.

A :class:`~kernelweave.learn.sample.Sample` holds kernels between rows, and what is to
be learned from them. Nothing here knows X or an estimator.
"""
