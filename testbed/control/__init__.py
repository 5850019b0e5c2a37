"""The controller: forwarding, epochs, flow selection and register collection.

It speaks to a switch through the small face of `testbed.control.switch.SwitchControl`.
"""
