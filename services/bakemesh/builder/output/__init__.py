"""A step's output, from the child's pipe to the chunk that the session journals.

`pipe_reader` takes bytes out of a pipe, `cutter` decides where chunks end and when they go, `step_output`
joins the two and keeps the order. What a chunk's `seq` is, and where it is stored, is the session's
business.
"""

from bakemesh.builder.output.cutter import Chunk, Cutter, StreamClosed
from bakemesh.builder.output.pipe_reader import PipeReader
from bakemesh.builder.output.step_output import PassedChunk, Sink, StepOutput

__all__ = ["Chunk", "Cutter", "PassedChunk", "PipeReader", "Sink", "StepOutput", "StreamClosed"]
