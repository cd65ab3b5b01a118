# SPDX-License-Identifier: Apache-2.0
"""Low-level messages of a legged robot as packed bytes, in Unitree's style: one per direction, with a checksum.

Little-endian, without padding:

command  head 2 x u8 (FE EF), version 2 x u8, number u32, 20 motors of (mode u8, q, dq, tau, kp, kd: f32), crc u32
state    head 2 x u8 (FE EF), version 2 x u8, number u32, tick u32 [ms], quaternion w x y z, gyroscope [rad/s],
         accelerometer [m/s^2] (10 x f32), 20 motors of (mode u8, q, dq, tau: f32), position [m] and velocity [m/s] of
         the base by motion capture (6 x f32), crc u32

A motor's torque is tau + kp (q - q_measured) + kd (dq - dq_measured). Your robot's own layout differs: change `COMMAND`
and `STATE`, and keep the rest.

The checksum is CRC-32 with polynomial 0x04C11DB7 and initial value FFFFFFFF, without reflection or final inversion
(CRC-32/MPEG-2), over all 32-bit words before it, each from its highest bit; bytes after the last whole word are
ignored.
"""

import struct
from dataclasses import dataclass, field

import numpy as np

MOTORS = 20
HEAD, VERSION = (0xFE, 0xEF), (1, 0)
OFF, SERVO = 0x00, 0x0A  # motor modes: no torque; the law above
COMMAND = struct.Struct("<4BI" + "B5f" * MOTORS + "I")
STATE = struct.Struct("<4BII10f" + "B3f" * MOTORS + "6fI")


def _table():
    table = np.zeros(256, np.uint32)
    for byte in range(256):
        value = byte << 24
        for _ in range(8):
            value = (value << 1) ^ 0x04C11DB7 if value & 0x80000000 else value << 1
        table[byte] = value & 0xFFFFFFFF
    return table.tolist()


_TABLE = _table()


def crc(data):
    """Return the checksum of bytes, word by word."""
    value = 0xFFFFFFFF
    for (word,) in struct.iter_unpack("<I", data[: len(data) // 4 * 4]):
        for byte in word.to_bytes(4, "big"):
            value = ((value << 8) & 0xFFFFFFFF) ^ _TABLE[(value >> 24) ^ byte]
    return value


@dataclass
class LowCommand:
    """Motor commands; arrays of shape [MOTORS]."""

    number: int = 0
    mode: np.ndarray = field(default_factory=lambda: np.full(MOTORS, OFF))
    q: np.ndarray = field(default_factory=lambda: np.zeros(MOTORS))
    dq: np.ndarray = field(default_factory=lambda: np.zeros(MOTORS))
    tau: np.ndarray = field(default_factory=lambda: np.zeros(MOTORS))
    kp: np.ndarray = field(default_factory=lambda: np.zeros(MOTORS))
    kd: np.ndarray = field(default_factory=lambda: np.zeros(MOTORS))

    def pack(self):
        """Return the bytes of a packet."""
        rows = zip(
            self.mode.tolist(), *(x.tolist() for x in (self.q, self.dq, self.tau, self.kp, self.kd)), strict=True
        )
        return _sealed(COMMAND, (*HEAD, *VERSION, self.number), [x for row in rows for x in row])

    @classmethod
    def unpack(cls, data):
        """Return the command in a packet, or None if invalid."""
        values = _opened(COMMAND, data)
        if values is None:
            return None
        motors = np.array(values[5:]).reshape(MOTORS, 6)
        return cls(values[4], motors[:, 0].astype(int), *motors[:, 1:].T)


@dataclass
class LowState:
    """The robot's measurements; see the module's docstring."""

    number: int = 0
    tick: int = 0
    quaternion: np.ndarray = field(default_factory=lambda: np.array([1.0, 0.0, 0.0, 0.0]))
    gyroscope: np.ndarray = field(default_factory=lambda: np.zeros(3))
    accelerometer: np.ndarray = field(default_factory=lambda: np.zeros(3))
    mode: np.ndarray = field(default_factory=lambda: np.full(MOTORS, OFF))
    q: np.ndarray = field(default_factory=lambda: np.zeros(MOTORS))
    dq: np.ndarray = field(default_factory=lambda: np.zeros(MOTORS))
    tau: np.ndarray = field(default_factory=lambda: np.zeros(MOTORS))
    position: np.ndarray = field(default_factory=lambda: np.zeros(3))
    velocity: np.ndarray = field(default_factory=lambda: np.zeros(3))

    def pack(self):
        """Return the bytes of a packet."""
        imu = [*self.quaternion.tolist(), *self.gyroscope.tolist(), *self.accelerometer.tolist()]
        rows = zip(self.mode.tolist(), *(x.tolist() for x in (self.q, self.dq, self.tau)), strict=True)
        motors, base = [x for row in rows for x in row], [*self.position.tolist(), *self.velocity.tolist()]
        return _sealed(STATE, (*HEAD, *VERSION, self.number, self.tick), [*imu, *motors, *base])

    @classmethod
    def unpack(cls, data):
        """Return the state in a packet, or None if invalid."""
        values = _opened(STATE, data)
        if values is None:
            return None
        imu, motors, base = (np.array(values[a:b]) for a, b in ((6, 16), (16, 16 + 4 * MOTORS), (-6, None)))
        motors = motors.reshape(MOTORS, 4)
        return cls(
            values[4], values[5], imu[:4], imu[4:7], imu[7:], motors[:, 0].astype(int), *motors[:, 1:].T, base[:3],
            base[3:],
        )  # fmt: skip


def _sealed(form, head, values):
    body = form.pack(*head, *values, 0)[:-4]
    return body + struct.pack("<I", crc(body))


def _opened(form, data):
    """Return the numbers of a packet without its checksum; None if length, head or checksum are wrong."""
    if len(data) != form.size or tuple(data[:2]) != HEAD or crc(data[:-4]) != struct.unpack("<I", data[-4:])[0]:
        return None
    return form.unpack(data)[:-1]
