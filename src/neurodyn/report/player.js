// Plays the pictures of a page: play and pause, and a slider for the time.
const player = document.getElementById("player");
if (player) {
  const frames = JSON.parse(document.getElementById("frames").textContent);
  const image = player.querySelector("img");
  const button = player.querySelector("button");
  const slider = player.querySelector("input");
  const interval = Number(player.dataset.interval);
  let playing = !matchMedia("(prefers-reduced-motion: reduce)").matches;
  let origin = performance.now();
  const show = (index) => { slider.value = index; image.src = frames[index]; };
  const set = (on) => {
    playing = on;
    button.textContent = on ? "Pause" : "Play";
    origin = performance.now() - Number(slider.value) * interval;
  };
  const tick = (now) => {
    if (playing) {
      const index = Math.floor(Math.max(0, now - origin) / interval) % frames.length;
      if (index !== Number(slider.value)) show(index);
    }
    requestAnimationFrame(tick);
  };
  button.addEventListener("click", () => set(!playing));
  slider.addEventListener("input", () => { set(false); image.src = frames[Number(slider.value)]; });
  show(0);
  set(playing);
  player.hidden = false;
  requestAnimationFrame(tick);
}
