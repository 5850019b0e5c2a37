# SPDX-License-Identifier: Apache-2.0
"""deTector's probes (`matrix`): over the paths of its matrix, both ways."""
