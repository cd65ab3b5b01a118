# SPDX-License-Identifier: Apache-2.0
"""Robot descriptions before Newton imports them: URDF and MJCF, their meshes, welded bodies and inertias."""
