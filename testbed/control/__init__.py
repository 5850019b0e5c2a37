# SPDX-License-Identifier: Apache-2.0
"""The controller: forwarding, epochs, flow selection and register collection.

It talks to a switch through the protocol `testbed.control.switch.SwitchControl`.
"""
