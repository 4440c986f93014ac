"""The part of the lab that runs on this machine: see lab/run."""
