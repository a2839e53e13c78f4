/* What is set for this browser alone: the density of lists, and notifications of decisions that wait. Pages work without it.
   Notifications are set for one account of the browser: whoever signs in after it has not allowed any. */
(function () {
  "use strict";

  var DENSITY = "lqops.density";
  var NOTIFY = "lqops.notify.";
  var LAST = "lqops.notified.";
  var EVERY_MS = 10000;
  var BLOCKED = "The browser blocks notifications of this site. Allow them in its settings.";

  function setDensity() {
    document.documentElement.classList.toggle("lq-roomy", localStorage.getItem(DENSITY) === "comfortable");
  }

  function isOn(place) {
    return localStorage.getItem(NOTIFY + place.dataset.user) === "yes" && "Notification" in window && Notification.permission === "granted";
  }

  function last(place) {
    return Number(localStorage.getItem(LAST + place.dataset.user) || 0);
  }

  function waiting(place) {
    return fetch(place.dataset.waiting.replace(/0\/$/, last(place) + "/"), { credentials: "same-origin" }).then(function (answer) {
      return answer.ok && !answer.redirected ? answer.json() : Promise.reject(new Error("gone"));
    });
  }

  // Several open pages of one browser show a notification once: it has the same tag in each.
  function show(found, place) {
    found.rows.forEach(function (row) {
      if (row.id > last(place)) {
        var shown = new Notification(row.title, { tag: "lqops-" + row.id, body: row.text });
        shown.addEventListener("click", function () {
          window.focus();
          location.assign(row.link);
        });
      }
    });
    localStorage.setItem(LAST + place.dataset.user, String(Math.max(found.newest, last(place))));
  }

  function follow(place) {
    setTimeout(function () {
      (isOn(place) ? waiting(place).then(function (found) { show(found, place); }) : Promise.resolve())
        .catch(function () {})
        .then(function () { follow(place); });
    }, EVERY_MS);
  }

  // What waits already is on the pages: only what comes from now on is shown.
  function switchOn(field, say, place) {
    Notification.requestPermission()
      .then(function (answer) {
        if (answer !== "granted") {
          throw new Error(BLOCKED);
        }
        return waiting(place);
      })
      .then(function (found) {
        localStorage.setItem(LAST + place.dataset.user, String(found.newest));
        localStorage.setItem(NOTIFY + place.dataset.user, "yes");
        say.textContent = "On, while a page of this site is open.";
      })
      .catch(function (error) {
        field.checked = false;
        say.textContent = error.message;
      });
  }

  function offer(card, place) {
    var field = card.querySelector("[data-notify]");
    var say = card.querySelector("[role=status]");
    card.hidden = false;
    field.checked = isOn(place);
    field.disabled = !("Notification" in window) || !window.isSecureContext;
    field.addEventListener("change", function () {
      if (field.checked) {
        switchOn(field, say, place);
      } else {
        localStorage.removeItem(NOTIFY + place.dataset.user);
        say.textContent = "Off.";
      }
    });
  }

  // One in the menu of the account, one on the page Channels: both show what was chosen.
  function offerDensity() {
    var fields = document.querySelectorAll("[data-density]");
    function show() {
      fields.forEach(function (field) { field.value = localStorage.getItem(DENSITY) || "compact"; });
    }
    fields.forEach(function (field) {
      field.addEventListener("change", function () {
        localStorage.setItem(DENSITY, field.value);
        setDensity();
        show();
      });
    });
    document.querySelectorAll("[data-density-row]").forEach(function (row) { row.hidden = false; });
    show();
  }

  setDensity();
  document.addEventListener("DOMContentLoaded", function () {
    var place = document.querySelector("[data-waiting]");
    offerDensity();
    if (place) {
      follow(place);
      document.querySelectorAll("[data-browser]").forEach(function (card) { offer(card, place); });
    }
  });
})();
