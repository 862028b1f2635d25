# tracelake with Dagster's web server and daemon; compose.yaml starts them. Build: docker build -t tracelake .
FROM python:3.13-slim-bookworm AS wheel
WORKDIR /source
COPY pyproject.toml setup.py LICENSE ./
COPY tracelake tracelake
COPY pipelines pipelines
COPY sql sql
COPY assets assets
COPY dagster_project dagster_project
RUN python -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.13-slim-bookworm
COPY --from=wheel /wheels /wheels
# By path, so that no index can offer another package of this name.
RUN set -- /wheels/*.whl && python -m pip install --no-cache-dir "$1[dagster,postgres]" && rm -r /wheels
# Traces are foreign files: who reads them owns the lake and Dagster's records, and none of the programs.
RUN useradd --uid 10001 --create-home tracelake \
    && install -d -o tracelake -g tracelake /data/lake /data/dagster \
    && install -d /data/inbox /opt/tracelake
COPY --chown=tracelake:tracelake dagster_project/dagster-postgres.yaml /data/dagster/dagster.yaml
COPY dagster_project/workspace.yaml /opt/tracelake/workspace.yaml
# PYTHONSAFEPATH: nothing is imported from the folder that a program is started in.
ENV TRACELAKE_LAKE=/data/lake \
    TRACELAKE_INBOX=/data/inbox \
    DAGSTER_HOME=/data/dagster \
    PYTHONSAFEPATH=1 \
    PYTHONUNBUFFERED=1
WORKDIR /opt/tracelake
USER 10001:10001
ENTRYPOINT ["tracelake"]
CMD ["--help"]
