// Asks for the report that the address names, and goes there when it is made.
"use strict";
(async () => {
  const id = decodeURIComponent(location.pathname.split("/").pop());
  document.getElementById("id").textContent = id;
  const fail = (text) => {
    document.getElementById("status").hidden = true;
    const error = document.getElementById("error");
    error.textContent = text;
    error.hidden = false;
  };
  try {
    const answer = await fetch("/report", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ id }),
    });
    const reply = await answer.json();
    if (answer.ok) location.replace(reply.page);
    else fail([reply.error, reply.hint].filter(Boolean).join("\n"));
  } catch (error) {
    fail(`the server did not answer: ${error.message}`);
  }
})();
