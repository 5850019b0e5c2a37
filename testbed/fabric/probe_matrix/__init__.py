# SPDX-License-Identifier: Apache-2.0
"""deTector's probe matrix of a fabric: few paths that cover every link and tell failures apart."""
