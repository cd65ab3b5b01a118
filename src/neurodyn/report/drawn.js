// Draws robots in motion, each in a panel of its own, from the ends and radii of their shapes in every frame.
const drawn = document.getElementById("drawn");
if (drawn) {
  const scene = JSON.parse(document.getElementById("motions").textContent);
  const canvas = drawn.querySelector("canvas"), pen = canvas.getContext("2d");
  const button = drawn.querySelector("button"), slider = drawn.querySelector("input");
  const frames = Number(slider.max) + 1, wide = canvas.width / scene.motions.length, high = canvas.height;
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const [cos, sin] = [Math.cos(0.7), Math.sin(0.7)], tilt = 0.42;
  // Seen obliquely from above: across, up, and away from the viewer.
  const seen = ([x, y, z], [cx, cy]) => {
    const along = (x - cx) * cos + (y - cy) * sin, away = -(x - cx) * sin + (y - cy) * cos;
    return [along, z * Math.cos(tilt) + away * Math.sin(tilt), away * Math.cos(tilt) - z * Math.sin(tilt)];
  };
  const draw = (index) => {
    pen.clearRect(0, 0, canvas.width, high);
    scene.motions.forEach((motion, panel) => {
      const frame = Math.min(index, motion.ends.length - 1), ends = motion.ends[frame], eye = motion.eye[frame];
      const scale = wide / scene.width, left = panel * wide;
      const at = (p) => { const [a, u, d] = seen(p, eye); return [left + wide / 2 + a * scale, high * 0.62 - u * scale, d]; };
      pen.save();
      pen.beginPath(); pen.rect(left + 4, 4, wide - 8, high - 8); pen.clip();
      pen.strokeStyle = colour("--line"); pen.lineWidth = 1;
      const [gx, gy] = [Math.round(eye[0]), Math.round(eye[1])];
      for (let k = -6; k <= 6; k++) {
        for (const [p, q] of [[[gx + k, gy - 6, 0], [gx + k, gy + 6, 0]], [[gx - 6, gy + k, 0], [gx + 6, gy + k, 0]]]) {
          const [a, b] = at(p), [c, d] = at(q);
          pen.beginPath(); pen.moveTo(a, b); pen.lineTo(c, d); pen.stroke();
        }
      }
      pen.lineCap = "round";
      const shapes = ends.map((end, k) => [at(end.slice(0, 3)), at(end.slice(3)), scene.radii[k]]);
      shapes.sort((one, other) => other[0][2] + other[1][2] - one[0][2] - one[1][2]);
      for (const edge of [true, false]) {
        for (const [from, to, radius] of shapes) {
          pen.strokeStyle = edge ? colour("--surface") : colour(motion.colour);
          pen.lineWidth = 2 * radius * scale + (edge ? 4 : 0);
          pen.beginPath(); pen.moveTo(from[0], from[1]); pen.lineTo(to[0] + 0.01, to[1]); pen.stroke();
        }
      }
      pen.fillStyle = colour("--ink"); pen.font = "600 22px system-ui, sans-serif";
      pen.fillText(motion.label, left + 22, 36);
      pen.fillStyle = colour("--quiet"); pen.font = "20px system-ui, sans-serif";
      const walked = Math.hypot(eye[0] - motion.eye[0][0], eye[1] - motion.eye[0][1]);
      pen.fillText(`${(frame * scene.interval).toFixed(1)} s, ${walked.toFixed(1)} m from the start`, left + 22, 64);
      pen.restore();
    });
  };
  let playing = !matchMedia("(prefers-reduced-motion: reduce)").matches, origin = performance.now();
  const set = (on) => {
    playing = on;
    button.textContent = on ? "Pause" : "Play";
    origin = performance.now() - Number(slider.value) * scene.interval * 1000;
  };
  const tick = (now) => {
    if (playing) {
      slider.value = Math.floor(Math.max(0, now - origin) / 1000 / scene.interval) % frames;
      draw(Number(slider.value));
    }
    requestAnimationFrame(tick);
  };
  button.addEventListener("click", () => set(!playing));
  slider.addEventListener("input", () => { set(false); draw(Number(slider.value)); });
  drawn.hidden = false;
  draw(Math.floor(frames / 3));
  set(playing);
  requestAnimationFrame(tick);
}
