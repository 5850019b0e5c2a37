"""The networks a run can be made on, behind one face."""
