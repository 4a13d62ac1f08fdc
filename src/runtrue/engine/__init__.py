"""Runs what authors write: worker, execution by replay, the journal, the heartbeat, the sweeper."""
